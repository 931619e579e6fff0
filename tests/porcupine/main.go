// Judges histories of one shard's log with porcupine, as a second opinion on
// shardlog/sim/linearizability.py, whose docstring states the specification.
//
// A JSON list of histories comes in on stdin; one line per history goes out:
// linearizable, violation or unknown (out of time).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const timeoutPerHistory = 30 * time.Second

type pair [2]int // offset, value

type operation struct {
	Client int    `json:"client"`
	Call   int64  `json:"call"`
	Reply  *int64 `json:"reply"`
	Kind   string `json:"kind"`
	Value  int    `json:"value"`
	Count  int    `json:"count"`
	Offset *int   `json:"offset"`
	Start  int    `json:"start"`
	Limit  int    `json:"limit"`
	Seen   []pair `json:"seen"`
	End    int    `json:"end"`
}

// input is an operation and, for an unanswered append, the offsets at which
// some read saw it. At any other offset it explains no more than if it had
// never taken effect.
type input struct {
	operation
	offsets []int
}

type state struct {
	entries []pair
	end     int
}

func (s state) appended(offset int, op operation) state {
	entries := append(slices.Clone(s.entries), pair{offset, op.Value})
	return state{entries, offset + op.Count}
}

func (s state) shows(op operation) bool {
	var visible []pair
	for _, entry := range s.entries {
		if entry[0] >= op.Start && len(visible) < op.Limit {
			visible = append(visible, entry)
		}
	}
	return slices.Equal(visible, op.Seen)
}

func step(before, in, _ interface{}) []interface{} {
	s, op := before.(state), in.(input)
	var after []interface{}
	switch {
	case op.Kind == "append" && op.Reply != nil:
		if *op.Offset >= s.end {
			after = append(after, s.appended(*op.Offset, op.operation))
		}
	case op.Kind == "append":
		after = append(after, s)
		for _, offset := range op.offsets {
			if offset >= s.end {
				after = append(after, s.appended(offset, op.operation))
			}
		}
	case op.Reply == nil:
		after = append(after, s)
	case op.End >= s.end && s.shows(op.operation):
		after = append(after, state{s.entries, op.End})
	}
	return after
}

func model() porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{state{}} },
		Step: step,
		Equal: func(one, two interface{}) bool {
			a, b := one.(state), two.(state)
			return a.end == b.end && slices.Equal(a.entries, b.entries)
		},
	}
	return nondeterministic.ToModel()
}

func operations(history []operation) []porcupine.Operation {
	seenAt := map[int][]int{}
	for _, op := range history {
		for _, entry := range op.Seen {
			if !slices.Contains(seenAt[entry[1]], entry[0]) {
				seenAt[entry[1]] = append(seenAt[entry[1]], entry[0])
			}
		}
	}
	var all []porcupine.Operation
	for _, op := range history {
		reply := int64(math.MaxInt64)
		if op.Reply != nil {
			reply = *op.Reply
		}
		all = append(all, porcupine.Operation{
			ClientId: op.Client,
			Input:    input{op, seenAt[op.Value]},
			Call:     op.Call,
			Return:   reply,
		})
	}
	return all
}

func main() {
	var histories [][]operation
	if err := json.NewDecoder(bufio.NewReader(os.Stdin)).Decode(&histories); err != nil {
		log.Fatal(err)
	}
	verdicts := map[porcupine.CheckResult]string{
		porcupine.Ok:      "linearizable",
		porcupine.Illegal: "violation",
		porcupine.Unknown: "unknown",
	}
	for _, history := range histories {
		result := porcupine.CheckOperationsTimeout(model(), operations(history), timeoutPerHistory)
		fmt.Println(verdicts[result])
	}
}
