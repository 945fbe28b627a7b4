// SPDX-License-Identifier: Apache-2.0

// Package godeltaprof stands in for the module of that name, which does not compile with
// the Go of today. The server profiles itself with it, which our tests turn off.
package godeltaprof

import "io"

// HeapProfiler writes nothing.
type HeapProfiler struct{}

// BlockProfiler writes nothing.
type BlockProfiler struct{}

// NewHeapProfiler makes a profiler of the heap.
func NewHeapProfiler() *HeapProfiler { return &HeapProfiler{} }

// NewBlockProfiler makes a profiler of blocking.
func NewBlockProfiler() *BlockProfiler { return &BlockProfiler{} }

// NewMutexProfiler makes a profiler of contention.
func NewMutexProfiler() *BlockProfiler { return &BlockProfiler{} }

// Profile writes nothing.
func (*HeapProfiler) Profile(io.Writer) error { return nil }

// Profile writes nothing.
func (*BlockProfiler) Profile(io.Writer) error { return nil }
