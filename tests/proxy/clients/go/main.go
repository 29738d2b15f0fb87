// What a program with the Go client of RocketMQ 5 does; a line of JSON for each part.
//
// go-program HOST:PORT
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const patience = 60 * time.Second

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: os.Args[1], ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func tell(part string, found any) {
	line, err := json.Marshal(struct {
		Part  string `json:"part"`
		Found any    `json:"found"`
	}{part, found})
	must(err)
	fmt.Println(string(line))
}

func send(topic string, messages ...*rmq.Message) {
	producer, err := rmq.NewProducer(config(""), rmq.WithTopics(topic))
	must(err)
	must(producer.Start())
	for _, message := range messages {
		message.Topic = topic
		_, err := producer.Send(context.Background(), message)
		must(err)
	}
	must(producer.GracefulStop())
}

// receive acknowledges so many messages and gives their bodies with the number of the delivery.
func receive(topic string, group string, count int) []string {
	consumer, err := rmq.NewSimpleConsumer(config(group),
		rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}))
	must(err)
	must(consumer.Start())
	found := []string{}
	for until := time.Now().Add(patience); len(found) < count && time.Now().Before(until); {
		messages, err := consumer.Receive(context.Background(), 16, 30*time.Second)
		if err != nil { // also when there is none
			continue
		}
		for _, message := range messages {
			found = append(found, fmt.Sprintf("%s#%d", message.GetBody(), message.GetDeliveryAttempt()))
			must(consumer.Ack(context.Background(), message))
		}
	}
	must(consumer.GracefulStop())
	return found
}

func main() {
	messages := []*rmq.Message{}
	for number := 0; number < 5; number++ {
		messages = append(messages, &rmq.Message{Body: []byte(fmt.Sprintf("simple-%d", number))})
	}
	send("Normal", messages...)
	found := receive("Normal", "Simple", 5)
	sort.Strings(found)
	tell("simple", found)

	messages = messages[:0]
	for number := 0; number < 6; number++ {
		message := &rmq.Message{Body: []byte(fmt.Sprintf("ordered-%d", number))}
		message.SetMessageGroup("one")
		messages = append(messages, message)
	}
	send("Fifo", messages...)
	tell("ordered", receive("Fifo", "Ordered", 6))

	began := time.Now()
	message := &rmq.Message{Body: []byte("delayed")}
	message.SetDelayTimestamp(began.Add(3 * time.Second))
	send("Delay", message)
	found = receive("Delay", "Delayed", 1)
	late := time.Since(began) >= 2*time.Second
	if len(found) == 1 {
		tell("delayed", []any{found[0], late})
	}
}
