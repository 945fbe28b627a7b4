// SPDX-License-Identifier: Apache-2.0

// Igoperators runs a gadget's image with Inspektor Gadget's own operators, as `ig run` does,
// for tests that compare what it tells with what it was told.
//
//	igoperators [flags] TAR IMAGE
//
// TAR goes into Inspektor Gadget's store as `ig image import` does it, IMAGE is a reference
// in it. Lines on standard output are JSON: {"imported": …}, {"info": …} when asked for,
// else {"ready": …} and {"source": …, "rows": …}. SIGTERM ends it well.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	rowjson "github.com/inspektor-gadget/inspektor-gadget/pkg/datasource/formatters/json"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	apihelpers "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api-helpers"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/oci"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/ebpf"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/formatters"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/localmanager"
	ocihandler "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/oci-handler"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/uidgidresolver"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/ustack"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime/local"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"
	"google.golang.org/protobuf/encoding/protojson"
)

// after those operators that add to rows
const priority = 50000

var output sync.Mutex

func say(format string, values ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", values...)
}

type words map[string]string

func (w words) String() string { return "" }

func (w words) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("no NAME=VALUE")
	}
	w[name] = value
	return nil
}

type options struct {
	tar, image           string
	parameters, settings words
	describe             bool
	timeout              time.Duration
}

func main() {
	o := options{parameters: words{}, settings: words{}}
	flag.Var(o.parameters, "param", "KEY=VALUE for this run, the key in full")
	flag.Var(o.settings, "set", "KEY=VALUE for the whole program, the key in full")
	flag.BoolVar(&o.describe, "describe", false, "say what the gadget is and end")
	flag.DurationVar(&o.timeout, "timeout", 0, "end by itself after this time")
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	o.tar, o.image = flag.Arg(0), flag.Arg(1)
	if err := run(o); err != nil {
		fmt.Fprintf(os.Stderr, "igoperators: %v\n", err)
		os.Exit(1)
	}
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	imported, err := oci.ImportGadgetImages(ctx, o.tar)
	if err != nil {
		return err
	}
	say(`{"imported": %q}`, strings.Join(imported, " "))
	o.parameters["operator.oci.pull"] = oci.PullImageNever
	if err := prepare(o.settings); err != nil {
		return err
	}
	runtime := local.New()
	if err := runtime.Init(nil); err != nil {
		return err
	}
	with := []operators.DataOperator{teller()}
	for _, one := range operators.GetDataOperators() {
		with = append(with, one)
	}
	gadget := gadgetcontext.New(ctx, o.image, gadgetcontext.WithDataOperators(with...),
		gadgetcontext.WithTimeout(o.timeout))
	values := api.ParamValues(o.parameters)
	if !o.describe {
		return runtime.RunGadget(gadget, nil, values)
	}
	info, err := runtime.GetGadgetInfo(gadget, nil, values)
	if err != nil {
		return err
	}
	text, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(info)
	say(`{"info": %s}`, compact(text))
	return err
}

// compact: one line, without the spaces that protojson puts there by chance.
func compact(text []byte) string {
	var any json.RawMessage = text
	out, err := json.Marshal(any)
	if err != nil {
		return "null"
	}
	return string(out)
}

// prepare does for operators what the command line of `ig` does.
func prepare(settings words) error {
	if err := host.Init(host.Config{}); err != nil {
		return err
	}
	operators.RegisterDataOperator(ocihandler.OciHandler)
	for _, one := range operators.GetDataOperators() {
		values := apihelpers.ToParamDescs(one.GlobalParams()).ToParams()
		if err := values.CopyFromMap(settings, "operator."+one.Name()+"."); err != nil {
			return err
		}
		if err := one.Init(values); err != nil {
			return fmt.Errorf("operator %s: %w", one.Name(), err)
		}
	}
	return nil
}

// teller prints all rows of all data sources.
func teller() operators.DataOperator {
	return simple.New("teller", simple.WithPriority(priority),
		simple.OnInit(func(gadget operators.GadgetContext) error {
			for _, source := range gadget.GetDataSources() {
				if err := follow(source); err != nil {
					return err
				}
			}
			return nil
		}),
		simple.OnStart(func(operators.GadgetContext) error {
			say(`{"ready": true}`)
			return nil
		}))
}

func follow(source datasource.DataSource) error {
	formatter, err := rowjson.New(source, rowjson.WithShowAll(true))
	if err != nil {
		return err
	}
	if source.Type() == datasource.TypeArray {
		return source.SubscribeArray(func(_ datasource.DataSource, rows datasource.DataArray) error {
			say(`{"source": %q, "rows": %s}`, source.Name(), formatter.MarshalArray(rows))
			return nil
		}, priority)
	}
	return source.Subscribe(func(_ datasource.DataSource, row datasource.Data) error {
		say(`{"source": %q, "rows": [%s]}`, source.Name(), formatter.Marshal(row))
		return nil
	}, priority)
}
