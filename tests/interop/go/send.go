package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
)

func newMessage(given arguments, i int) *primitive.Message {
	name := fmt.Sprintf("%s-%d", given.text("prefix", ""), i)
	var body strings.Builder
	body.WriteString(name)
	size := given.number("size", 0)
	for line := 0; body.Len() < size; line++ {
		fmt.Fprintf(&body, " line %d", line)
	}
	tags := strings.Split(given.text("tags", "TagA"), ",")
	message := primitive.NewMessage(given.text("topic", ""), []byte(body.String()))
	message.WithTag(tags[i%len(tags)]).WithKeys([]string{name})
	message.WithProperty("number", strconv.Itoa(i))
	message.WithProperty("text", "Grüße, 世界")
	message.Flag = int32(i)
	if delay := given.number("delay", 0); given.text("timer", "") != "" {
		message.WithProperty(given.text("timer", ""), strconv.Itoa(delay+i))
	}
	if name := given.text("property", ""); name != "" {
		message.WithProperty(name, strings.Split(given.text("values", ""), ",")[i])
	}
	return message
}

// shardSelector keeps every message of one sharding key in one queue.
type shardSelector struct{}

func (shardSelector) Select(message *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	shard, err := strconv.Atoi(message.GetShardingKey())
	check(err)
	return queues[shard%len(queues)]
}

// send --mode sync|async|oneway|batch [--shards N: a selector keeps one of N shards in one queue] [--stay true: before it
// closes its connections it waits for the end of its input] [--timer TIMER_DELAY_MS --delay MS: message i is due so much and
// i ms later] [--property NAME --values A,B,...: message i has the i-th value] [--trace true].
// send --mode stream [--pause MS] [--retries N] [--timeout MS]: one after the other until the input ends, each tried once unless --retries says
// otherwise, so that no message is stored twice by the client itself.
func send(given arguments) {
	timeout, retries := 10*time.Second, 2
	if given.text("mode", "") == "stream" {
		timeout, retries = time.Duration(given.number("timeout", 3000))*time.Millisecond, given.number("retries", 0)
	}
	options := []producer.Option{
		producer.WithNsResolver(given.nameServer()),
		producer.WithGroupName(given.text("group", "")),
		producer.WithSendMsgTimeout(timeout),
		producer.WithRetry(retries),
		producer.WithCredentials(given.credentials()),
	}
	if given.text("trace", "") == "true" {
		options = append(options, producer.WithTrace(given.traceConfig()))
	}
	shards := given.number("shards", 0)
	if shards > 0 {
		options = append(options, producer.WithQueueSelector(shardSelector{}))
	}
	sender, err := rocketmq.NewProducer(options...)
	check(err)
	check(sender.Start())
	show("ready", fields{})
	if given.text("mode", "") == "stream" {
		stream(sender, given)
		check(sender.Shutdown())
		show("done", fields{})
		return
	}
	var messages []*primitive.Message
	for i := 0; i < given.number("count", 1); i++ {
		message := newMessage(given, i)
		if shards > 0 {
			message.WithShardingKey(strconv.Itoa(i % shards))
		}
		messages = append(messages, message)
	}
	switch mode := given.text("mode", "sync"); mode {
	case "sync":
		for _, message := range messages {
			result, err := sender.SendSync(context.Background(), message)
			check(err)
			showSent(message.GetKeys(), result)
		}
	case "async":
		sendAsync(sender, messages)
	case "oneway":
		for _, message := range messages {
			check(sender.SendOneWay(context.Background(), message))
		}
	case "batch":
		result, err := sender.SendSync(context.Background(), messages...)
		check(err)
		showSent("batch", result)
	default:
		check(fmt.Errorf("no such mode: %s", mode))
	}
	if given.text("stay", "") == "true" {
		waitForEndOfInput()
	}
	check(sender.Shutdown())
	show("done", fields{})
}

func stream(sender rocketmq.Producer, given arguments) {
	ended := make(chan struct{})
	go func() {
		waitForEndOfInput()
		close(ended)
	}()
	for i := 0; ; i++ {
		message := newMessage(given, i)
		if result, err := sender.SendSync(context.Background(), message); err != nil {
			show("failed", fields{"key": message.GetKeys(), "error": err.Error()})
		} else {
			showSent(message.GetKeys(), result)
		}
		select {
		case <-ended:
			return
		case <-time.After(time.Duration(given.number("pause", 5)) * time.Millisecond):
		}
	}
}

func sendAsync(sender rocketmq.Producer, messages []*primitive.Message) {
	var missing sync.WaitGroup
	missing.Add(len(messages))
	for _, message := range messages {
		key := message.GetKeys()
		check(sender.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			defer missing.Done()
			if err != nil {
				show("failed", fields{"key": key, "error": err.Error()})
				return
			}
			showSent(key, result)
		}, message))
	}
	missing.Wait()
}
