// The load on a system that Shardlog is compared with, by the best client it has in Go.
//
//	load SYSTEM ADDRESSES PATTERN [flags]
//
// One line of JSON tells what was seen; times are microseconds, by the clock all processes share.
// shardlog_load.py does the same for Shardlog, with the same arguments and the same answers.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// How many records an appender may have under way depends on the system: see each of them.
type system interface {
	create(ctx context.Context, log string, shards, replicas int) error
	// Something that appends, on one connection.
	connect(log string, use use) (appender, error)
	// Calls each with the value of every record, from the first one or from the end on; `ready` when
	// nothing appended from now on can be missed.
	read(ctx context.Context, log string, fromEnd bool, ready func(), each func(value []byte)) error
	// The name of the server that leads.
	leader(ctx context.Context, log string) (string, error)
	// Of one appender.
	window(valueBytes int) int
}

type use int

const (
	// Every append shall be answered soon.
	answers use = iota
	// Throughput is what counts; it may have several connections.
	saturates
	// Its leader will die.
	survives
)

type appender interface {
	append(shard int, value []byte, done func(error))
	close()
}

type options struct {
	log         string
	shards      int
	replicas    int
	size        int
	seconds     float64
	warmUp      float64
	rate        int
	connections int
	count       int
	tail        bool
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 3 {
		return fmt.Errorf("SYSTEM ADDRESSES PATTERN are needed")
	}
	var o options
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.StringVar(&o.log, "log", "bench", "")
	flags.IntVar(&o.shards, "shards", 1, "")
	flags.IntVar(&o.replicas, "replicas", 3, "")
	flags.IntVar(&o.size, "size", 128, "")
	flags.Float64Var(&o.seconds, "seconds", 2, "")
	flags.Float64Var(&o.warmUp, "warm-up", 0.5, "")
	flags.IntVar(&o.rate, "rate", 2000, "")
	flags.IntVar(&o.connections, "connections", 64, "")
	flags.IntVar(&o.count, "count", 0, "")
	flags.BoolVar(&o.tail, "tail", false, "")
	if err := flags.Parse(arguments[3:]); err != nil {
		return err
	}
	system, err := systemOf(arguments[0], strings.Split(arguments[1], ","))
	if err != nil {
		return err
	}
	pattern, found := patterns[arguments[2]]
	if !found {
		return fmt.Errorf("%s: no such pattern", arguments[2])
	}
	answer, err := pattern(context.Background(), system, o)
	if err != nil {
		return err
	}
	answer["client_cpu_s"] = cpuSeconds()
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func systemOf(name string, addresses []string) (system, error) {
	switch name {
	case "kafka":
		return &kafka{addresses}, nil
	case "nats":
		return &jetStream{addresses}, nil
	case "etcd":
		return &etcd{addresses}, nil
	}
	return nil, fmt.Errorf("%s: no such system", name)
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
