package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// produce sends messages and reports each with its key and where it went.
//
// --namesrv A --topic T --group G --mode sync,async,oneway,batch,order (each --count N messages, its
// name in the keys) --tags a,b (in turn) --size N (of the body) --delay N (a level)
func produce(o orders) error {
	chosen := producer.NewRoundRobinQueueSelector()
	if o["mode"] == "order" {
		chosen = producer.NewHashQueueSelector()
	}
	sender, err := rocketmq.NewProducer(producer.WithNsResolver(o.nameServers()),
		producer.WithGroupName(o.text("group", "PG_go")), producer.WithRetry(2),
		producer.WithQueueSelector(chosen))
	if err != nil {
		return err
	}
	if err = sender.Start(); err != nil {
		return err
	}
	background := context.Background()
	for _, mode := range o.list("mode") {
		var answers sync.WaitGroup
		batch := []*primitive.Message{}
		for number := 0; number < o.number("count", 1); number++ {
			message := messageOf(o, mode, number)
			switch mode {
			case "async":
				answers.Add(1)
				err = sender.SendAsync(background,
					func(_ context.Context, result *primitive.SendResult, wrong error) {
						sent(message, result, wrong)
						answers.Done()
					}, message)
			case "oneway":
				err = sender.SendOneWay(background, message)
				report("oneway", fields{"key": message.GetKeys()})
			case "batch":
				batch = append(batch, message)
			default:
				var result *primitive.SendResult
				result, err = sender.SendSync(background, message)
				sent(message, result, err)
			}
			if err != nil {
				return err
			}
		}
		if len(batch) > 0 {
			result, wrong := sender.SendSync(background, batch...)
			sent(batch[0], result, wrong)
		}
		answers.Wait()
	}
	report("done", nil)
	stay()
	return sender.Shutdown()
}

func messageOf(o orders, mode string, number int) *primitive.Message {
	key := fmt.Sprintf("%s-%s-%d", o.text("prefix", "g"), mode, number)
	body := []byte(key)
	for len(body) < o.number("size", 0) {
		body = append(body, '.')
	}
	message := primitive.NewMessage(o["topic"], body)
	message.WithKeys([]string{key})
	if tags := o.list("tags"); len(tags) > 0 {
		message.WithTag(tags[number%len(tags)])
	}
	message.WithProperty("number", fmt.Sprint(number))
	if mode == "order" {
		message.WithShardingKey(fmt.Sprint("order-", number%4))
	}
	if level := o.number("delay", 0); level > 0 {
		message.WithDelayTimeLevel(level)
	}
	return message
}

func sent(message *primitive.Message, result *primitive.SendResult, wrong error) {
	if wrong != nil {
		report("failed", fields{"key": message.GetKeys(), "error": wrong.Error()})
		return
	}
	report("sent", fields{"key": message.GetKeys(), "status": int(result.Status),
		"broker": result.MessageQueue.BrokerName, "queue": result.MessageQueue.QueueId,
		"offset": result.QueueOffset, "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID})
}

// transact sends one message for each word of --plan: commit and rollback are said at once,
// unknown-commit and unknown-rollback when the broker asks.
func transact(o orders) error {
	plan := o.list("plan")
	sender, err := rocketmq.NewTransactionProducer(planned{},
		producer.WithNsResolver(o.nameServers()), producer.WithGroupName(o["group"]))
	if err != nil {
		return err
	}
	if err = sender.Start(); err != nil {
		return err
	}
	for number, word := range plan {
		message := messageOf(o, "t", number)
		message.WithProperty("plan", word)
		result, wrong := sender.SendMessageInTransaction(context.Background(), message)
		if wrong != nil {
			return wrong
		}
		report("sent", fields{"key": message.GetKeys(), "status": int(result.Status),
			"state": int(result.State)})
	}
	report("done", nil)
	stay()
	return sender.Shutdown()
}

type planned struct{}

func (planned) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch message.GetProperty("plan") {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (planned) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	word := message.GetProperty("plan")
	report("checked", fields{"key": message.GetKeys(), "plan": word, "topic": message.Topic,
		"body": string(message.Body)})
	if word == "unknown-commit" {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

// ask sends --count requests, one after the other, and reports the replies.
func ask(o orders) error {
	asker, err := rocketmq.NewProducer(producer.WithNsResolver(o.nameServers()),
		producer.WithGroupName("PG_go_ask"))
	if err != nil {
		return err
	}
	if err = asker.Start(); err != nil {
		return err
	}
	for number := 0; number < o.number("count", 1); number++ {
		message := messageOf(o, "ask", number)
		key := message.GetKeys()
		reply, wrong := asker.Request(context.Background(), 60*time.Second, message)
		if wrong != nil {
			report("failed", fields{"key": key, "error": wrong.Error()})
			continue
		}
		report("replied", fields{"key": key, "body": string(reply.Body), "topic": reply.Topic})
	}
	report("done", nil)
	stay() // who did not hear that its reply came says it again
	return asker.Shutdown()
}

// answer replies to each message of a topic with "re: " and its body.
func answer(o orders) error {
	sender, err := rocketmq.NewProducer(producer.WithNsResolver(o.nameServers()),
		producer.WithGroupName("PG_go_answer"))
	if err != nil {
		return err
	}
	if err = sender.Start(); err != nil {
		return err
	}
	reader, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(o.nameServers()),
		consumer.WithGroupName(o["group"]),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return err
	}
	reply := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			text, wrong := consumer.CreateReplyMessage(message, nil)
			if wrong != nil {
				return consumer.ConsumeRetryLater, wrong
			}
			text.Body = append([]byte("re: "), message.Body...) // 2.1.2 drops the one it is given
			// Who asked tells the broker of its producer with a heartbeat a second after it
			// began: before that there is no way back to it.
			result, wrong := sender.SendSync(context.Background(), text)
			for tries := 0; wrong != nil && tries < 80; tries++ {
				time.Sleep(500 * time.Millisecond)
				result, wrong = sender.SendSync(context.Background(), text)
			}
			if wrong != nil {
				report("failed", fields{"key": message.GetKeys(), "error": wrong.Error()})
				continue
			}
			report("answered", fields{"key": message.GetKeys(), "status": int(result.Status)})
		}
		return consumer.ConsumeSuccess, nil
	}
	if err = reader.Subscribe(o["topic"], consumer.MessageSelector{}, reply); err != nil {
		return err
	}
	if err = reader.Start(); err != nil {
		return err
	}
	report("started", nil)
	stay()
	return reader.Shutdown()
}
