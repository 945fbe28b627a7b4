// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/perf"
	"github.com/cilium/ebpf/ringbuf"
)

const batch = 100 // as many entries as Inspektor Gadget asks for at once

// line is one JSON object of the output.
type line map[string]any

var output sync.Mutex

func say(what line) {
	text, err := json.Marshal(what)
	if err != nil {
		text = []byte(fmt.Sprintf(`{"error": %q}`, err))
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

type reading struct {
	gadget  *gadget
	options options
	packets int
	tracing sync.WaitGroup
	closers []func() error
}

func startReading(g *gadget, o options) (*reading, error) {
	r := &reading{gadget: g, options: o}
	for _, one := range g.markers.tracers {
		if err := r.trace(one); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// serve reads the maps in the interval and when asked, until a signal comes.
func (r *reading) serve(stopped <-chan os.Signal, interval time.Duration) {
	asked := make(chan struct{})
	go listen(asked)
	var ticks <-chan time.Time
	if interval > 0 {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-stopped:
			r.drainAll()
			r.finish()
			return
		case <-ticks:
			r.drainAll()
		case <-asked:
			r.drainAll()
			say(line{"drained": r.packets})
		}
	}
}

func listen(asked chan<- struct{}) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if lines.Text() == "drain" {
			asked <- struct{}{}
		}
	}
}

// finish waits until what the buffers hold is told.
func (r *reading) finish() {
	for _, end := range r.closers {
		_ = end()
	}
	r.tracing.Wait()
}

func (r *reading) drainAll() {
	r.packets++
	for _, one := range r.gadget.markers.mapIterators {
		rows, err := r.drain(one)
		packet := line{"packet": r.packets, "source": one.source, "rows": rows}
		if err != nil {
			packet["error"] = err.Error()
		}
		say(packet)
	}
	for _, one := range r.gadget.markers.tracers {
		r.tellLost(one)
	}
}

// drain takes all entries out of a map and tells them.
func (r *reading) drain(from mapIterator) (rows int, err error) {
	table := r.gadget.collection.Maps[from.table]
	keys, values := elements(from.key.Size), elements(from.value.Size)
	var cursor ebpf.MapBatchCursor
	for {
		count, err := table.BatchLookupAndDelete(&cursor, keys.Interface(), values.Interface(), nil)
		for i := range count {
			row := line{}
			r.gadget.enums.decode(row, from.key, keys.Index(i).Bytes())
			r.gadget.enums.decode(row, from.value, values.Index(i).Bytes())
			addStacks(r.gadget, row, from.value, r.options.buildIDs)
			say(line{"source": from.source, "packet": r.packets, "row": row})
		}
		rows += count
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
	}
}

func elements(size uint32) reflect.Value {
	one := reflect.ArrayOf(int(size), reflect.TypeFor[byte]())
	return reflect.MakeSlice(reflect.SliceOf(one), batch, batch)
}

func (r *reading) trace(from tracer) error {
	events := r.gadget.collection.Maps[from.events]
	if events.Type() == ebpf.RingBuf {
		reader, err := ringbuf.NewReader(events)
		if err != nil {
			return err
		}
		r.closers = append(r.closers, reader.Flush)
		r.follow(from, func() ([]byte, uint64, error) {
			record, err := reader.Read()
			return record.RawSample, 0, err
		})
		return nil
	}
	reader, err := perf.NewReader(events, 64*os.Getpagesize())
	if err != nil {
		return err
	}
	r.closers = append(r.closers, reader.Flush)
	r.follow(from, func() ([]byte, uint64, error) {
		record, err := reader.Read()
		return record.RawSample, record.LostSamples, err
	})
	return nil
}

func (r *reading) follow(from tracer, next func() ([]byte, uint64, error)) {
	r.tracing.Add(1)
	go func() {
		defer r.tracing.Done()
		for {
			sample, lost, err := next()
			switch {
			case err != nil:
				return
			case lost > 0:
				say(line{"source": from.source, "lost": lost})
			default:
				r.tellEvent(from, sample)
			}
		}
	}()
}

// tellEvent: what is short is filled up with zeros, what is long is cut.
func (r *reading) tellEvent(from tracer, sample []byte) {
	whole := make([]byte, from.row.Size)
	copy(whole, sample)
	row := line{}
	r.gadget.enums.decode(row, from.row, whole)
	addStacks(r.gadget, row, from.row, r.options.buildIDs)
	say(line{"source": from.source, "row": row})
}

// tellLost reads the counter of what found no room and sets it to zero.
func (r *reading) tellLost(from tracer) {
	counter := r.gadget.collection.Maps[from.events+"_lost_samples"]
	if counter == nil {
		return
	}
	var each []uint64
	if counter.Lookup(uint32(0), &each) != nil {
		return
	}
	total := uint64(0)
	for _, one := range each {
		total += one
	}
	if total > 0 {
		say(line{"source": from.source, "lost": total})
		_ = counter.Put(uint32(0), make([]uint64, len(each)))
	}
}
