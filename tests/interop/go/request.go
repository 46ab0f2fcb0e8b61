package main

import (
	"context"
	"hash/crc32"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
)

func showReply(key string, reply *primitive.Message) {
	show("reply", fields{
		"key": key, "bodySize": len(reply.Body), "bodyCrc": crc32.ChecksumIEEE(reply.Body),
		"properties": reply.GetProperties(),
	})
}

func newProducer(given arguments, group string) rocketmq.Producer {
	sender, err := rocketmq.NewProducer(
		producer.WithNsResolver(given.nameServer()),
		producer.WithGroupName(group),
		producer.WithSendMsgTimeout(10*time.Second),
		producer.WithRetry(2),
	)
	check(err)
	check(sender.Start())
	return sender
}

// request --mode sync|callback --count N [--size S] [--timeout MS]: prints each reply.
func request(given arguments) {
	sender := newProducer(given, given.text("group", ""))
	// The client makes itself known to the brokers of its routes once, a second after its start, and not before requests.
	_, err := sender.SendSync(context.Background(), primitive.NewMessage(given.text("topic", "")+"_hello", []byte("hello")))
	check(err)
	time.Sleep(3 * time.Second)
	show("ready", fields{})
	timeout := time.Duration(given.number("timeout", 20000)) * time.Millisecond
	var missing sync.WaitGroup
	for i := 0; i < given.number("count", 1); i++ {
		message := newMessage(given, i)
		key := message.GetKeys()
		var once sync.Once // the client calls back twice, for the reply and for its removal from the table
		ended := func(_ context.Context, reply *primitive.Message, err error) {
			once.Do(func() {
				if err != nil {
					show("failed", fields{"key": key, "error": err.Error()})
				} else {
					showReply(key, reply)
				}
				missing.Done()
			})
		}
		missing.Add(1)
		if given.text("mode", "sync") == "callback" {
			check(sender.RequestAsync(context.Background(), timeout, ended, message))
		} else {
			reply, err := sender.Request(context.Background(), timeout, message)
			ended(context.Background(), reply, err)
		}
	}
	missing.Wait()
	check(sender.Shutdown())
	show("done", fields{})
}

// reply: a consumer that answers each message M with "re: M", until its input ends; prints its queues.
func reply(given arguments) {
	sender := newProducer(given, given.text("group", "")+"_replies")
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(given.nameServer()),
		consumer.WithGroupName(given.text("group", "")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithStrategy(watched(given.text("topic", ""))),
	)
	check(err)
	check(receiver.Subscribe(given.text("topic", ""), tagsSelector(given),
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				answer, err := consumer.CreateReplyMessage(message, nil) // it takes a body for properties
				check(err)
				answer.Body = append([]byte("re: "), message.Body...)
				result, err := sender.SendSync(context.Background(), answer)
				if err != nil {
					show("failed", fields{"key": message.GetKeys(), "error": err.Error()})
					continue
				}
				showSent(message.GetKeys(), result)
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(receiver.Start())
	show("ready", fields{})
	waitForEndOfInput()
	check(receiver.Shutdown())
	check(sender.Shutdown())
	show("done", fields{})
}
