package main

import (
	"context"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const heartbeatAfter = 1500 * time.Millisecond // of its start a client is known to the brokers, which pass replies to it

// account is one of those that make attempts at the same time.
type account struct {
	name, nameServer, topic, requests string
	credentials                       primitive.Credentials
}

func (a account) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{a.nameServer})
}

func (a account) message(topic, operation string) *primitive.Message {
	key := a.name + "-" + operation
	return primitive.NewMessage(topic, []byte(key)).WithTag("TagA").WithKeys([]string{key})
}

// attempts --accounts NAME/ACCESS/SECRET/NAMESRV,... --topic T --requests R: all accounts at once send, send a batch, send in a
// transaction, request (a message of R, to which consumers of R reply) and pull; prints the outcome of each. Then a consumer of
// each account, of group T_NAME, prints what it gets of T until the input ends. Pulls are of group T_NAME_pulls.
func attempts(given arguments) {
	var missing sync.WaitGroup
	for _, text := range strings.Split(given.text("accounts", ""), ",") {
		parts := strings.Split(text, "/")
		one := account{
			parts[0], parts[3], given.text("topic", ""), given.text("requests", ""),
			primitive.Credentials{AccessKey: parts[1], SecretKey: parts[2]},
		}
		missing.Add(1)
		go func() {
			defer missing.Done()
			one.all()
		}()
	}
	missing.Wait()
	show("ready", fields{})
	waitForEndOfInput()
	show("done", fields{})
}

func (a account) all() {
	sender, err := rocketmq.NewProducer(a.producerOptions("_producers_")...)
	check(err)
	check(sender.Start())
	halves, err := rocketmq.NewTransactionProducer(decider{[]string{"commit"}, []string{"commit"}}, a.producerOptions("_halves_")...)
	check(err)
	check(halves.Start())
	ctx := context.Background()
	a.attempt("send", func() error {
		_, err := sender.SendSync(ctx, a.message(a.topic, "send"))
		return err
	})
	a.consume(sender)
	a.attempt("batch", func() error {
		_, err := sender.SendSync(ctx, a.message(a.topic, "batch-0"), a.message(a.topic, "batch-1"))
		return err
	})
	a.attempt("transaction", func() error {
		half := a.message(a.topic, "transaction")
		half.WithProperty("number", "0")
		_, err := halves.SendMessageInTransaction(ctx, half)
		return err
	})
	time.Sleep(heartbeatAfter)
	a.attempt("request", func() error { return a.request(sender) })
	a.attempt("pull", a.pull)
}

func (a account) attempt(operation string, work func() error) {
	outcome := fields{"account": a.name, "operation": operation, "error": ""}
	if err := work(); err != nil {
		outcome["error"] = err.Error()
	}
	show("outcome", outcome)
}

func (a account) producerOptions(group string) []producer.Option {
	return []producer.Option{
		producer.WithNsResolver(a.resolver()),
		producer.WithGroupName(a.topic + group + a.name),
		producer.WithInstanceName(a.name),
		producer.WithCredentials(a.credentials),
		producer.WithRetry(0),
	}
}

func (a account) consumerOptions(suffix string) []consumer.Option {
	return []consumer.Option{
		consumer.WithNsResolver(a.resolver()),
		consumer.WithGroupName(a.topic + "_" + a.name + suffix),
		consumer.WithInstance(a.name + suffix),
		consumer.WithCredentials(a.credentials),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
}

func (a account) request(sender rocketmq.Producer) error {
	ended := make(chan error, 2) // the client calls back twice, for the reply and for its removal from the table
	answered := func(_ context.Context, _ *primitive.Message, err error) { ended <- err }
	if err := sender.RequestAsync(context.Background(), 10*time.Second, answered, a.message(a.requests, "request")); err != nil {
		return err
	}
	return <-ended
}

func (a account) pull() error {
	receiver, err := rocketmq.NewPullConsumer(a.consumerOptions("_pulls")...)
	check(err)
	check(receiver.Subscribe(a.topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
	if err := receiver.Start(); err != nil {
		return err
	}
	_, err = receiver.PullFrom(context.Background(), &primitive.MessageQueue{Topic: a.topic, BrokerName: "broker-a"}, 0, pullBatch)
	return err
}

func (a account) consume(replies rocketmq.Producer) {
	receiver, err := rocketmq.NewPushConsumer(a.consumerOptions("")...)
	check(err)
	every := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	check(receiver.Subscribe(a.topic, every, a.listener(func(message *primitive.MessageExt) {
		show("received", fields{"account": a.name, "key": message.GetKeys()})
	})))
	check(receiver.Subscribe(a.requests, every, a.listener(func(message *primitive.MessageExt) {
		// Of two accounts that may reply each has its requests: the client panics if two replies to one come at once.
		if key := message.GetKeys(); (a.name == "inside" || key == "inside-request") && key != a.name+"-request" {
			return
		}
		a.attempt("reply", func() error {
			answer, err := consumer.CreateReplyMessage(message, nil) // it takes a body for properties
			check(err)
			answer.Body = message.Body
			_, err = replies.SendSync(context.Background(), answer)
			return err
		})
	})))
	if err := receiver.Start(); err != nil {
		show("failed", fields{"key": a.name, "error": err.Error()})
	}
}

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func (a account) listener(take func(*primitive.MessageExt)) listener {
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			take(message)
		}
		return consumer.ConsumeSuccess, nil
	}
}
