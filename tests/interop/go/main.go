// The Go client against a name server and a broker: producers, consumers and administration, each
// a word on the command line with its orders behind it (--name value, --flag).
//
// Reports are JSON objects a line on standard output, nothing else is printed there; the client's
// log goes to standard error. A program that stays online ends with the line "stop", or with the
// end of its input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var programs = map[string]func(orders) error{
	"administrate": administrate,
	"produce":      produce,
	"transact":     transact,
	"ask":          ask,
	"answer":       answer,
	"consume":      consume,
	"pull":         pull,
}

func main() {
	rlog.SetLogLevel("warn")
	program, known := programs[os.Args[1]]
	if !known {
		fmt.Fprintf(os.Stderr, "no program %s\n", os.Args[1])
		os.Exit(2)
	}
	if err := program(parse(os.Args[2:])); err != nil {
		report("wrong", fields{"error": err.Error()})
		os.Exit(1)
	}
}

type fields map[string]interface{}

var out sync.Mutex

func report(event string, what fields) {
	if what == nil {
		what = fields{}
	}
	what["event"] = event
	text, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	out.Lock()
	defer out.Unlock()
	fmt.Println(string(text))
}

// stay waits for the line "stop", or for the end of the input.
func stay() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "stop" {
	}
}

type orders map[string]string

func parse(words []string) orders {
	found := orders{}
	for at := 0; at < len(words); at++ {
		name := strings.TrimPrefix(words[at], "--")
		if at+1 == len(words) || strings.HasPrefix(words[at+1], "--") {
			found[name] = "true"
			continue
		}
		at++
		found[name] = words[at]
	}
	return found
}

func (o orders) text(name, otherwise string) string {
	if text, given := o[name]; given {
		return text
	}
	return otherwise
}

func (o orders) number(name string, otherwise int) int {
	text, given := o[name]
	if !given {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return number
}

func (o orders) flag(name string) bool { return o[name] == "true" }

func (o orders) list(name string) []string {
	if o[name] == "" {
		return nil
	}
	return strings.Split(o[name], ",")
}

func (o orders) nameServers() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{o["namesrv"]})
}
