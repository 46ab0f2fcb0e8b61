package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const pollTimeout = 100 * time.Millisecond
const pullBatch = 32

// litepull --mode subscribe (the client polls for its group) or assign (--queues, or every queue, from its
// beginning to its end; an empty queue would be waited for).
func litePull(given arguments) {
	topic := given.text("topic", "")
	receiver, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(given.nameServer()),
		consumer.WithGroupName(given.text("group", "")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	check(receiver.Subscribe(topic, tagsSelector(given)))
	check(receiver.Start())
	show("ready", fields{})
	if given.text("mode", "subscribe") == "assign" {
		pullAll(given, receiver, topic)
		waitForEndOfInput()
	} else {
		pollUntilEndOfInput(receiver)
	}
	check(receiver.PersistOffset(context.Background(), topic))
	check(receiver.Shutdown())
	show("done", fields{})
}

func pullAll(given arguments, receiver rocketmq.PullConsumer, topic string) {
	tool, err := admin.NewAdmin(admin.WithResolver(given.nameServer()))
	check(err)
	queues, err := tool.FetchPublishMessageQueues(context.Background(), topic)
	check(err)
	chosen := given.text("queues", "")
	for _, queue := range queues {
		if chosen == "" || slices.Contains(strings.Split(chosen, ","), strconv.Itoa(queue.QueueId)) {
			pullQueue(receiver, queue)
		}
	}
	check(tool.Close())
}

func pullQueue(receiver rocketmq.PullConsumer, queue *primitive.MessageQueue) {
	for offset := int64(0); ; {
		result, err := receiver.PullFrom(context.Background(), queue, offset, pullBatch)
		check(err)
		for _, message := range result.GetMessageExts() {
			showMessage(message)
		}
		offset = result.NextBeginOffset
		check(receiver.UpdateOffset(queue, offset))
		if offset >= result.MaxOffset {
			return
		}
	}
}

func pollUntilEndOfInput(receiver rocketmq.PullConsumer) {
	ended := make(chan struct{})
	go func() {
		waitForEndOfInput()
		close(ended)
	}()
	for {
		select {
		case <-ended:
			return
		default:
		}
		request, err := receiver.Poll(context.Background(), pollTimeout)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		check(err)
		for _, message := range request.GetMsgList() {
			showMessage(message)
		}
		receiver.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
}
