// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

type tracer struct {
	source, events string
	row            *btf.Struct
}

type mapIterator struct {
	source, table string
	key, value    *btf.Struct
}

// markers are variables whose names say what an object has to show.
type markers struct {
	tracers      []tracer
	mapIterators []mapIterator
	tracerMaps   []string
	parameters   map[string]bool
}

// isMarker: of global linkage, and const void *.
func isMarker(variable *btf.Var) bool {
	pointer, ok := variable.Type.(*btf.Pointer)
	if !ok || variable.Linkage != btf.GlobalVar {
		return false
	}
	constant, ok := pointer.Target.(*btf.Const)
	if !ok {
		return false
	}
	_, ok = constant.Type.(*btf.Void)
	return ok
}

func readMarkers(spec *ebpf.CollectionSpec) (markers, error) {
	found := markers{parameters: map[string]bool{}}
	if spec.Types == nil {
		return found, fmt.Errorf("missing types in the object")
	}
	for one, err := range spec.Types.All() {
		if err != nil {
			return found, err
		}
		variable, ok := one.(*btf.Var)
		if !ok {
			continue
		}
		if strings.HasPrefix(variable.Name, "gadget_var_") {
			return found, fmt.Errorf("variable %s: such a gadget does not start", variable.Name)
		}
		if !isMarker(variable) {
			continue
		}
		if err := found.take(spec, variable.Name); err != nil {
			return found, fmt.Errorf("marker %s: %w", variable.Name, err)
		}
	}
	return found, nil
}

func (m *markers) take(spec *ebpf.CollectionSpec, name string) error {
	for prefix, with := range map[string]func(*ebpf.CollectionSpec, []string) error{
		"gadget_tracer_":     m.takeTracer,
		"gadget_map_tracer_": m.takeTracerMap,
		"gadget_mapiter_":    m.takeMapIterator,
		"gadget_param_":      m.takeParameter,
	} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return with(spec, strings.Split(rest, "___"))
		}
	}
	return nil
}

func (m *markers) takeTracer(spec *ebpf.CollectionSpec, parts []string) error {
	if len(parts) != 3 {
		return fmt.Errorf("has %d parts and needs 3", len(parts))
	}
	table := spec.Maps[parts[1]]
	if table == nil {
		return fmt.Errorf("there is no map %s", parts[1])
	}
	if table.Type != ebpf.RingBuf && table.Type != ebpf.PerfEventArray {
		return fmt.Errorf("map %s is a %s", parts[1], table.Type)
	}
	var row *btf.Struct
	if err := spec.Types.TypeByName(parts[2], &row); err != nil {
		return err
	}
	m.tracers = append(m.tracers, tracer{parts[0], parts[1], row})
	return nil
}

func (m *markers) takeTracerMap(spec *ebpf.CollectionSpec, parts []string) error {
	if len(parts) != 1 || spec.Maps[parts[0]] == nil {
		return fmt.Errorf("there is no such map")
	}
	m.tracerMaps = append(m.tracerMaps, parts[0])
	return nil
}

func (m *markers) takeMapIterator(spec *ebpf.CollectionSpec, parts []string) error {
	if len(parts) != 2 {
		return fmt.Errorf("has %d parts and needs 2", len(parts))
	}
	table := spec.Maps[parts[1]]
	if table == nil || table.Type != ebpf.Hash {
		return fmt.Errorf("map %s has to be there and to be a hash", parts[1])
	}
	key, keyed := table.Key.(*btf.Struct)
	value, valued := table.Value.(*btf.Struct)
	if !keyed || !valued {
		return fmt.Errorf("key and value of map %s have to be structs", parts[1])
	}
	if key.Size != table.KeySize || value.Size != table.ValueSize {
		return fmt.Errorf("map %s has other sizes than its structs", parts[1])
	}
	for _, one := range m.mapIterators {
		if one.source == parts[0] {
			return fmt.Errorf("there are two of that name")
		}
	}
	m.mapIterators = append(m.mapIterators, mapIterator{parts[0], parts[1], key, value})
	return nil
}

func (m *markers) takeParameter(spec *ebpf.CollectionSpec, parts []string) error {
	if len(parts) != 1 || spec.Variables[parts[0]] == nil {
		return fmt.Errorf("there is no such variable")
	}
	m.parameters[parts[0]] = true
	return nil
}
