// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// isConstant: VAR -> CONST -> VOLATILE, what a variable has to be to be set before load.
func isConstant(variable *btf.Var) bool {
	if variable == nil {
		return false
	}
	constant, ok := variable.Type.(*btf.Const)
	if !ok {
		return false
	}
	_, ok = constant.Type.(*btf.Volatile)
	return ok
}

// textSize is the size of an array of char, 0 for what is none.
func textSize(variable *btf.Var) uint32 {
	array, ok := bare(variable.Type).(*btf.Array)
	if !ok {
		return 0
	}
	if element, ok := bare(array.Type).(*btf.Int); ok && element.Size == 1 {
		return array.Nelems
	}
	return 0
}

// bare is a type without names and qualifiers.
func bare(one btf.Type) btf.Type {
	for {
		switch now := one.(type) {
		case *btf.Typedef:
			one = now.Type
		case *btf.Const:
			one = now.Type
		case *btf.Volatile:
			one = now.Type
		default:
			return one
		}
	}
}

// setParameters sets those that are given. A text that nobody gives becomes empty,
// whatever the program says: Inspektor Gadget does not read defaults of texts.
func (g *gadget) setParameters(o options) error {
	given := map[string]bool{}
	for _, text := range o.parameters {
		name, _, _ := strings.Cut(text, "=")
		if !g.markers.parameters[name] {
			return fmt.Errorf("%s: the gadget declares no such parameter", name)
		}
		given[name] = true
		if err := setVariable(g.spec, text); err != nil {
			return err
		}
	}
	for name := range g.markers.parameters {
		variable := g.spec.Variables[name]
		if !variable.Constant() {
			return fmt.Errorf("parameter %s is no constant", name)
		}
		if size := textSize(variable.Type); size > 0 && !given[name] {
			if err := variable.Set(make([]byte, size)); err != nil {
				return err
			}
		}
	}
	return nil
}

func setVariable(spec *ebpf.CollectionSpec, text string) error {
	name, value, ok := strings.Cut(text, "=")
	variable := spec.Variables[name]
	if !ok || variable == nil {
		return fmt.Errorf("%s: no NAME=VALUE of a variable", text)
	}
	encoded, err := encode(variable, value)
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return variable.Set(encoded)
}

func encode(variable *ebpf.VariableSpec, value string) (any, error) {
	if size := textSize(variable.Type); size > 0 {
		if len(value) > int(size) {
			return nil, fmt.Errorf("longer than %d bytes", size)
		}
		return append([]byte(value), make([]byte, int(size)-len(value))...), nil
	}
	number, ok := bare(variable.Type.Type).(*btf.Int)
	if !ok {
		return nil, fmt.Errorf("neither number nor text")
	}
	if number.Encoding == btf.Bool {
		return strings.EqualFold(value, "true"), nil
	}
	if number.Encoding == btf.Signed {
		parsed, err := strconv.ParseInt(value, 0, int(number.Size)*8)
		return little(uint64(parsed), number.Size), err
	}
	parsed, err := strconv.ParseUint(value, 0, int(number.Size)*8)
	return little(parsed, number.Size), err
}

func little(number uint64, size uint32) []byte {
	bytes := make([]byte, size)
	for i := range bytes {
		bytes[i] = byte(number >> (8 * i))
	}
	return bytes
}
