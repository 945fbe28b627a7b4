// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

const (
	filterMap  = "gadget_mntns_filter_map"
	filterFlag = "gadget_filter_by_mntns"
	otelParams = "otel_generic_params"
	otelCalls  = "otel_tc_kprobe"
)

func load(o options) (*gadget, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpec(o.object)
	if err != nil {
		return nil, err
	}
	g := &gadget{spec: spec}
	if g.markers, err = readMarkers(spec); err != nil {
		return nil, err
	}
	if err := g.configure(o); err != nil {
		return nil, err
	}
	replacements, entry, err := g.replacements(o)
	if err != nil {
		return nil, err
	}
	g.enums = kernelEnums(spec.Types)
	g.collection, err = ebpf.NewCollectionWithOptions(spec,
		ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		return nil, explained(err)
	}
	return g, g.insertOtel(entry)
}

func explained(err error) error {
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		return fmt.Errorf("creating the collection: %w\n%+v", err, refused)
	}
	return fmt.Errorf("creating the collection: %w", err)
}

func (g *gadget) configure(o options) error {
	if err := g.setParameters(o); err != nil {
		return err
	}
	for _, text := range o.settings {
		if err := setVariable(g.spec, text); err != nil {
			return err
		}
	}
	for _, text := range o.sizes {
		if err := g.setEntries(text); err != nil {
			return err
		}
	}
	if err := g.applyMaxEntries(); err != nil {
		return err
	}
	if o.multi {
		forMultiLinks(g.spec)
	}
	if o.perfBuffer {
		for _, name := range g.markers.tracerMaps {
			asPerfBuffer(g.spec.Maps[name])
		}
	}
	return nil
}

// forMultiLinks: programs that call one another must all be of one kind.
func forMultiLinks(spec *ebpf.CollectionSpec) {
	for _, program := range spec.Programs {
		if program.Type == ebpf.Kprobe {
			program.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
}

func (g *gadget) setEntries(text string) error {
	name, value, _ := strings.Cut(text, "=")
	entries, err := strconv.ParseUint(value, 0, 32)
	if err != nil || g.spec.Maps[name] == nil {
		return fmt.Errorf("%s: no map of that name, or no number", text)
	}
	g.spec.Maps[name].MaxEntries = uint32(entries)
	return nil
}

// applyMaxEntries: a variable MAP_max_entries says how large the map MAP becomes.
func (g *gadget) applyMaxEntries() error {
	for name, table := range g.spec.Maps {
		variable := g.spec.Variables[name+"_max_entries"]
		if variable == nil {
			continue
		}
		var entries int32
		if err := variable.Get(&entries); err != nil {
			return fmt.Errorf("%s: %w", variable.Name, err)
		}
		table.MaxEntries = uint32(entries)
	}
	return nil
}

func asPerfBuffer(table *ebpf.MapSpec) {
	table.Type = ebpf.PerfEventArray
	table.KeySize, table.ValueSize = 4, 4
	table.MaxEntries = 0
}

// replacements are maps that somebody else owns; entry is what OTel's slot will hold.
func (g *gadget) replacements(o options) (map[string]*ebpf.Map, *ebpf.Program, error) {
	found := map[string]*ebpf.Map{}
	if len(o.mntns) > 0 {
		filter, err := g.filter(o.mntns)
		if err != nil {
			return nil, nil, err
		}
		found[filterMap] = filter
	}
	if o.otel == "" {
		return found, nil, nil
	}
	profiler, err := loadProfiler(o)
	if err != nil {
		return nil, nil, err
	}
	found[otelParams] = profiler.Maps[otelParams]
	if err := g.fits(otelParams, found[otelParams]); err != nil {
		return nil, nil, err
	}
	return found, profiler.Programs["entry"], nil
}

func loadProfiler(o options) (*ebpf.Collection, error) {
	spec, err := ebpf.LoadCollectionSpec(o.otel)
	if err != nil {
		return nil, err
	}
	if o.multi {
		forMultiLinks(spec)
	}
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, explained(err)
	}
	return loaded, nil
}

func (g *gadget) fits(name string, owned *ebpf.Map) error {
	spec := g.spec.Maps[name]
	if spec == nil || owned == nil {
		return fmt.Errorf("there is no map %s to replace", name)
	}
	return spec.Compatible(owned)
}

// filter is the manager's set of mount namespaces; an object's own shape must be the same.
func (g *gadget) filter(inodes []string) (*ebpf.Map, error) {
	owned, err := ebpf.NewMap(&ebpf.MapSpec{Name: "mntnsset", Type: ebpf.Hash,
		KeySize: 8, ValueSize: 4, MaxEntries: 1024})
	if err != nil {
		return nil, err
	}
	if err := g.fits(filterMap, owned); err != nil {
		return nil, err
	}
	for _, text := range inodes {
		inode, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return nil, err
		}
		if err := owned.Put(inode, uint32(0)); err != nil {
			return nil, err
		}
	}
	flag := g.spec.Variables[filterFlag]
	if flag == nil || !isConstant(flag.Type) {
		return nil, fmt.Errorf("%s is no const volatile", filterFlag)
	}
	return owned, flag.Set(true)
}

func (g *gadget) insertOtel(entry *ebpf.Program) error {
	if entry == nil {
		return nil
	}
	calls := g.collection.Maps[otelCalls]
	if calls == nil {
		return fmt.Errorf("there is no map %s", otelCalls)
	}
	return calls.Put(uint32(0), entry)
}
