package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
)

// decider says the outcome of a message by its number.
type decider struct {
	outcomes, answers []string
}

func stateOf(states []string, message interface{ GetProperty(string) string }) primitive.LocalTransactionState {
	number, err := strconv.Atoi(message.GetProperty("number"))
	check(err)
	switch states[number%len(states)] {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (d decider) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return stateOf(d.outcomes, message)
}

func (d decider) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	show("checked", fields{"key": message.GetKeys(), "msgId": message.MsgId})
	return stateOf(d.answers, message)
}

// transaction --count N --outcomes commit,unknown,... --answers rollback,...: sends messages in transactions whose outcome
// is the one of their number in turn, and answers checks of them likewise, until its input ends.
func transaction(given arguments) {
	listener := decider{
		strings.Split(given.text("outcomes", "commit"), ","),
		strings.Split(given.text("answers", "commit"), ","),
	}
	sender, err := rocketmq.NewTransactionProducer(listener,
		producer.WithNsResolver(given.nameServer()),
		producer.WithGroupName(given.text("group", "")),
		producer.WithSendMsgTimeout(10*time.Second),
	)
	check(err)
	check(sender.Start())
	show("ready", fields{})
	for i := 0; i < given.number("count", 0); i++ {
		message := newMessage(given, i)
		result, err := sender.SendMessageInTransaction(context.Background(), message)
		check(err)
		showSent(message.GetKeys(), result.SendResult)
	}
	show("ended", fields{})
	waitForEndOfInput()
	check(sender.Shutdown())
	show("done", fields{})
}
