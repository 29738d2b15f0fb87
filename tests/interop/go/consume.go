package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// consume is a member of a push-consumer group and reports each message.
//
// --namesrv A --topic T --group G --tags EXPR --orderly --broadcast --fail N (the first N deliveries
// ask for a later try)
func consume(o orders) error {
	model := consumer.Clustering
	if o.flag("broadcast") {
		model = consumer.BroadCasting
	}
	member, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(o.nameServers()),
		consumer.WithGroupName(o["group"]), consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(o.flag("orderly")),
		consumer.WithSuspendCurrentQueueTimeMillis(200*time.Millisecond),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return err
	}
	toFail := int32(o.number("fail", 0))
	listen := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			tell(message)
		}
		if atomic.AddInt32(&toFail, -1) >= 0 {
			if o.flag("orderly") {
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}
	if err = member.Subscribe(o["topic"], selector(o), listen); err != nil {
		return err
	}
	if err = member.Start(); err != nil {
		return err
	}
	report("started", nil)
	stay()
	err = member.Shutdown()
	report("stopped", nil)
	return err
}

// pull polls until it has --count messages or --seconds have passed, acknowledges each and leaves.
func pull(o orders) error {
	reader, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(o.nameServers()),
		consumer.WithGroupName(o["group"]),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return err
	}
	if err = reader.Subscribe(o["topic"], selector(o)); err != nil {
		return err
	}
	if err = reader.Start(); err != nil {
		return err
	}
	end := time.Now().Add(time.Duration(o.number("seconds", 30)) * time.Second)
	got := 0
	for got < o.number("count", 1) && time.Now().Before(end) {
		found, wrong := reader.Poll(context.Background(), time.Second)
		if consumer.IsNoNewMsgError(wrong) {
			continue
		}
		if wrong != nil {
			return wrong
		}
		for _, message := range found.GetMsgList() {
			tell(message)
			got++
		}
		reader.ACK(context.Background(), found, consumer.ConsumeSuccess)
	}
	if err = reader.PersistOffset(context.Background(), o["topic"]); err != nil {
		return err
	}
	err = reader.Shutdown()
	report("done", fields{"count": got})
	return err
}

func selector(o orders) consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.TAG, Expression: o.text("tags", "*")}
}

func tell(message *primitive.MessageExt) {
	report("message", fields{"key": message.GetKeys(), "tag": message.GetTags(),
		"body": string(message.Body), "topic": message.Topic, "times": message.ReconsumeTimes,
		"queue": message.Queue.QueueId, "offset": message.QueueOffset, "msgId": message.MsgId,
		"number": message.GetProperty("number"), "sharding": message.GetShardingKey()})
}
