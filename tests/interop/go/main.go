// One official Go client, driven by arguments: send, push, litepull, request, reply, transaction or attempts.
//
// Prints one JSON object per line. A consumer runs until its standard input ends, then leaves its group in good order.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// arguments are a command followed by pairs of --name value.
type arguments struct {
	command string
	values  map[string]string
}

func newArguments(words []string) arguments {
	parsed := arguments{command: words[0], values: map[string]string{}}
	for i := 1; i+1 < len(words); i += 2 {
		parsed.values[words[i][2:]] = words[i+1]
	}
	return parsed
}

func (a arguments) text(name, otherwise string) string {
	if value, found := a.values[name]; found {
		return value
	}
	return otherwise
}

func (a arguments) number(name string, otherwise int) int {
	value, found := a.values[name]
	if !found {
		return otherwise
	}
	number, err := strconv.Atoi(value)
	check(err)
	return number
}

func (a arguments) nameServer() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{a.values["namesrv"]})
}

// credentials sign the requests of `send` and `push` with --accessKey K --secretKey S.
func (a arguments) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: a.text("accessKey", ""), SecretKey: a.text("secretKey", "")}
}

// traceConfig is of both producers and consumers.
func (a arguments) traceConfig() *primitive.TraceConfig {
	return &primitive.TraceConfig{
		GroupName:    a.text("group", "") + "_traces",
		Access:       primitive.Local,
		NamesrvAddrs: []string{a.values["namesrv"]},
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

func main() {
	given := newArguments(os.Args[1:])
	switch given.command {
	case "send":
		send(given)
	case "push":
		push(given)
	case "litepull":
		litePull(given)
	case "request":
		request(given)
	case "reply":
		reply(given)
	case "transaction":
		transaction(given)
	case "allocate":
		allocate(given)
	case "attempts":
		attempts(given)
	default:
		check(fmt.Errorf("no such command: %s", given.command))
	}
}
