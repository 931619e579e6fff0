package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// So many records in a row go to one shard.
	shardRun = 100
	tick     = time.Millisecond
	drain    = 10 * time.Second
	// What lasts so long is a part of the pause; when there was none for so long, it is over.
	disturbance = 200 * time.Millisecond
	undisturbed = 2 * time.Second
	// Appends under way when a leader dies, each repeated until it is acknowledged.
	pauseWindow   = 16
	attempt       = time.Second
	attemptPause  = 10 * time.Millisecond
	createTimeout = 150 * time.Second
)

type answer map[string]any

var patterns = map[string]func(context.Context, system, options) (answer, error){
	"create":      create,
	"leader":      leader,
	"saturated":   saturated,
	"independent": independent,
	"lone":        lone,
	"offered":     offered,
	"read":        read,
	"pause":       pause,
}

func create(ctx context.Context, s system, o options) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	return answer{}, s.create(ctx, o.log, o.shards, o.replicas)
}

func leader(ctx context.Context, s system, o options) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	name, err := s.leader(ctx, o.log)
	return answer{"leader": name}, err
}

// Random, so that nothing gains by compressing it; the first eight bytes are for a time.
func valueOf(size int) []byte {
	value := make([]byte, size)
	for at := range value {
		value[at] = byte(rand.Uint32())
	}
	return value
}

// As many records under way as the system takes, from one connection.
func saturated(ctx context.Context, s system, o options) (answer, error) {
	appender, err := s.connect(o.log, saturates)
	if err != nil {
		return nil, err
	}
	defer appender.close()
	o.rate = 0 // nothing says when a record was due
	reader, err := follow(ctx, s, o)
	if err != nil {
		return nil, err
	}
	var acked atomic.Int64
	var failure atomic.Pointer[error]
	room := make(chan struct{}, s.window(o.size))
	value := valueOf(o.size)
	done := func(err error) {
		if err != nil {
			failure.CompareAndSwap(nil, &err)
		} else {
			acked.Add(1)
		}
		<-room
	}
	var begun time.Time
	var before, beforeRead int64
	start := time.Now()
	warm := seconds(o.warmUp)
	for i := 0; ; i++ {
		if i%64 == 0 {
			now := time.Now()
			if begun.IsZero() && now.Sub(start) >= warm {
				begun, before, beforeRead = now, acked.Load(), reader.count.Load()
			}
			if !begun.IsZero() && now.Sub(begun) >= seconds(o.seconds) {
				break
			}
			if failure.Load() != nil {
				break
			}
		}
		room <- struct{}{}
		appender.append(i/shardRun%o.shards, value, done)
	}
	if begun.IsZero() {
		begun = start
	}
	taken := time.Since(begun)
	count := acked.Load() - before
	found := answer{"records": count, "seconds": taken.Seconds()}
	if o.tail {
		found["read_records"] = reader.count.Load() - beforeRead
	}
	if !fill(room, drain) {
		return nil, fmt.Errorf("appends were not answered within %s", drain)
	}
	if failed := failure.Load(); failed != nil {
		return nil, *failed
	}
	found["records_all"] = acked.Load()
	return found, nil
}

// Whether all that is under way was answered in time.
func fill(room chan struct{}, within time.Duration) bool {
	deadline := time.After(within)
	for range cap(room) {
		select {
		case room <- struct{}{}:
		case <-deadline:
			return false
		}
	}
	return true
}

// Many connections, one append under way on each.
func independent(ctx context.Context, s system, o options) (answer, error) {
	appenders := make([]appender, o.connections)
	for at := range appenders {
		appender, err := s.connect(o.log, answers)
		if err != nil {
			return nil, err
		}
		defer appender.close()
		appenders[at] = appender
	}
	warm := time.Now().Add(seconds(o.warmUp))
	end := warm.Add(seconds(o.seconds))
	var all sync.WaitGroup
	taken := make([][]int64, o.connections)
	total := make([]int, o.connections)
	failures := make(chan error, o.connections)
	for at, appender := range appenders {
		spawn(&all, func() {
			value := valueOf(o.size)
			for {
				begun := time.Now()
				if begun.After(end) {
					return
				}
				if err := wait(appender, value); err != nil {
					failures <- err
					return
				}
				total[at]++
				if begun.After(warm) {
					taken[at] = append(taken[at], time.Since(begun).Microseconds())
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failures:
		return nil, err
	default:
	}
	latencies := append([]int64{}, slices.Concat(taken...)...)
	sum := 0
	for _, count := range total {
		sum += count
	}
	return answer{
		"records": len(latencies), "seconds": time.Since(warm).Seconds(), "records_all": sum,
		"latencies_us": latencies,
	}, nil
}

func spawn(all *sync.WaitGroup, work func()) {
	all.Add(1)
	go func() {
		defer all.Done()
		work()
	}()
}

func wait(appender appender, value []byte) error {
	answered := make(chan error, 1)
	appender.append(0, value, func(err error) { answered <- err })
	select {
	case err := <-answered:
		return err
	case <-time.After(drain):
		return fmt.Errorf("an append was not answered within %s", drain)
	}
}

// One connection, one append at a time.
func lone(ctx context.Context, s system, o options) (answer, error) {
	o.connections = 1
	return independent(ctx, s, o)
}

// Records that become due at a rate, whether or not earlier ones were answered.  Their latency counts
// from when each was due, also for those that had to wait for room.
func offered(ctx context.Context, s system, o options) (answer, error) {
	appender, err := s.connect(o.log, answers)
	if err != nil {
		return nil, err
	}
	defer appender.close()
	if err := wait(appender, valueOf(o.size)); err != nil {
		return nil, err
	}
	reader, err := follow(ctx, s, o)
	if err != nil {
		return nil, err
	}
	each := time.Second / time.Duration(o.rate)
	room := make(chan struct{}, s.window(o.size))
	skipped := int(o.warmUp * float64(o.rate))
	due := skipped + int(o.seconds*float64(o.rate))
	var lock sync.Mutex
	latencies := make([]int64, 0, due)
	var failed int
	value := valueOf(o.size)
	start := time.Now()
	sent := 0
	giveUp := start.Add(seconds(o.warmUp+o.seconds) + drain)
sending:
	for sent < due && time.Now().Before(giveUp) {
		for until := min(due, int(time.Since(start)/each)+1); sent < until; sent++ {
			number := sent
			dueAt := start.Add(time.Duration(number) * each)
			select {
			case room <- struct{}{}:
			case <-time.After(time.Until(giveUp)):
				break sending
			}
			stamped := slices.Clone(value)
			stamp(stamped, dueAt)
			appender.append(0, stamped, func(err error) {
				taken := time.Since(dueAt).Microseconds()
				lock.Lock()
				if err != nil {
					failed++
				} else if number >= skipped {
					latencies = append(latencies, taken)
				}
				lock.Unlock()
				<-room
			})
		}
		time.Sleep(tick)
	}
	fill(room, time.Until(giveUp))
	lock.Lock()
	defer lock.Unlock()
	found := answer{
		"due": due - skipped, "sent": max(0, sent-skipped), "failed": failed, "rate": o.rate,
		"seconds": time.Since(start).Seconds() - o.warmUp, "latencies_us": latencies,
		"records_all": sent - failed,
	}
	if o.tail {
		found["tail_us"] = reader.wait(due, giveUp, skipped)
	}
	return found, nil
}

// --- readers ---------------------------------------------------------------------------------------

// A reader at the end of the log; it notes how long ago each record was due.
type follower struct {
	count     atomic.Int64
	lock      sync.Mutex
	latencies []int64
}

func follow(ctx context.Context, s system, o options) (*follower, error) {
	made := &follower{}
	if !o.tail {
		return made, nil
	}
	ready := make(chan error, 2)
	go func() {
		err := s.read(ctx, o.log, true, func() { ready <- nil }, func(value []byte) {
			made.count.Add(1)
			if o.rate > 0 && len(value) >= 8 {
				taken := time.Since(base).Nanoseconds() - int64(binary.LittleEndian.Uint64(value))
				made.lock.Lock()
				made.latencies = append(made.latencies, taken/1000)
				made.lock.Unlock()
			}
		})
		ready <- err
	}()
	select {
	case err := <-ready:
		return made, err
	case <-time.After(drain):
		return nil, fmt.Errorf("a reader was not ready within %s", drain)
	}
}

func (f *follower) wait(due int, until time.Time, skipped int) []int64 {
	for int(f.count.Load()) < due && time.Now().Before(until) {
		time.Sleep(tick)
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	return slices.Clone(f.latencies[min(skipped, len(f.latencies)):])
}

var base = time.Now()

func stamp(value []byte, due time.Time) {
	if len(value) >= 8 {
		binary.LittleEndian.PutUint64(value, uint64(due.Sub(base).Nanoseconds()))
	}
}

// The log from its first record on, until so many were read or the time is over.
func read(ctx context.Context, s system, o options) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, seconds(o.seconds))
	defer cancel()
	count, size := 0, 0
	start := time.Now()
	var last time.Time
	err := s.read(ctx, o.log, false, func() {}, func(value []byte) {
		count++
		size += len(value)
		if count%256 == 0 || count == o.count {
			last = time.Now()
		}
		if count == o.count {
			cancel()
		}
	})
	if count == 0 {
		return nil, fmt.Errorf("nothing was read: %v", err)
	}
	if last.IsZero() {
		last = time.Now()
	}
	return answer{"records": count, "bytes": size, "seconds": last.Sub(start).Seconds()}, nil
}

// --- a leader that dies ----------------------------------------------------------------------------

// The longest time without an acknowledgement from the moment on that a line on standard input says
// the leader is dead, until appends have flowed again for a while.
func pause(ctx context.Context, s system, o options) (answer, error) {
	appender, err := s.connect(o.log, survives)
	if err != nil {
		return nil, err
	}
	if err := wait(appender, valueOf(o.size)); err != nil {
		return nil, err
	}
	watch := &pauseWatch{last: time.Now()}
	fmt.Println(`{"begun": true}`)
	go func() {
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err == nil {
			watch.killed()
		}
	}()
	end := time.Now().Add(seconds(o.seconds))
	for range pauseWindow {
		go func() {
			value := valueOf(o.size)
			for {
				answered := make(chan error, 1)
				appender.append(0, value, func(err error) { answered <- err })
				select {
				case err := <-answered:
					if err == nil {
						watch.acked()
					} else {
						time.Sleep(attemptPause)
					}
				case <-time.After(attempt):
				}
			}
		}()
	}
	for time.Now().Before(end) && !watch.flowsAgain() {
		time.Sleep(tick)
	}
	watch.lock.Lock()
	defer watch.lock.Unlock()
	if watch.longest == 0 {
		return nil, fmt.Errorf("nothing was acknowledged for %.0f s", o.seconds)
	}
	return answer{"pause_s": watch.longest.Seconds(), "records": watch.count}, nil
}

type pauseWatch struct {
	lock      sync.Mutex
	count     int
	last      time.Time
	killedAt  time.Time
	longest   time.Duration
	disturbed time.Time
}

func (w *pauseWatch) killed() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.killedAt = time.Now()
	w.disturbed = w.killedAt
}

func (w *pauseWatch) acked() {
	w.lock.Lock()
	defer w.lock.Unlock()
	now := time.Now()
	gap := now.Sub(w.last)
	w.last = now
	w.count++
	if w.killedAt.IsZero() {
		return
	}
	w.longest = max(w.longest, gap)
	if gap >= disturbance {
		w.disturbed = now
	}
}

func (w *pauseWatch) flowsAgain() bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	now := time.Now()
	return !w.killedAt.IsZero() && now.Sub(w.disturbed) >= undisturbed && now.Sub(w.last) < disturbance
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second))
}
