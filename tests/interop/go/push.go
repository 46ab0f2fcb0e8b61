package main

import (
	"context"
	"slices"
	"strings"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// push [--model clustering|broadcasting] [--orderly true] [--expression E or --sql E]; prints queues and messages.
// --fail true: every message is to be retried, --attempts N times. --trace true: it traces what it consumes.
func push(given arguments) {
	topic := given.text("topic", "")
	model := consumer.Clustering
	if given.text("model", "clustering") == "broadcasting" {
		model = consumer.BroadCasting
	}
	options := []consumer.Option{
		consumer.WithNsResolver(given.nameServer()),
		consumer.WithGroupName(given.text("group", "")),
		consumer.WithInstance(given.text("instance", "DEFAULT")),
		consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(given.text("orderly", "false") == "true"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithStrategy(watched(topic)),
		consumer.WithMaxReconsumeTimes(int32(given.number("attempts", -1))),
		consumer.WithCredentials(given.credentials()),
	}
	if given.text("trace", "") == "true" {
		options = append(options, consumer.WithTrace(given.traceConfig()))
	}
	receiver, err := rocketmq.NewPushConsumer(options...)
	check(err)
	check(receiver.Subscribe(topic, tagsSelector(given),
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				showMessage(message)
			}
			if given.text("fail", "false") == "true" {
				return consumer.ConsumeRetryLater, nil
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(receiver.Start())
	show("ready", fields{})
	waitForEndOfInput()
	check(receiver.Shutdown())
	show("done", fields{})
}

func tagsSelector(given arguments) consumer.MessageSelector {
	if sql := given.text("sql", ""); sql != "" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: strings.TrimSpace(given.text("expression", "*"))}
}

// watched is the client's own strategy; it shows each new answer, because the client does not tell what it holds.
func watched(topic string) consumer.AllocateStrategy {
	var known []int
	return func(group, me string, all []*primitive.MessageQueue, members []string) []*primitive.MessageQueue {
		mine := consumer.AllocateByAveragely(group, me, all, members)
		if len(all) > 0 && all[0].Topic == topic {
			if ids := queueIds(mine); known == nil || !slices.Equal(ids, known) {
				known = ids
				show("queues", fields{"queues": ids, "clientId": me})
			}
		}
		return mine
	}
}
