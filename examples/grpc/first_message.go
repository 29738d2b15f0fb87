// Send a message and receive it, with the Go client of RocketMQ 5 through `aerobee up --grpc`.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func config(group string) *rmq.Config {
	endpoint := "127.0.0.1:8081"
	if len(os.Args) > 1 {
		endpoint = os.Args[1]
	}
	return &rmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func main() {
	rmq.EnableSsl = false
	producer, err := rmq.NewProducer(config(""), rmq.WithTopics("orders"))
	must(err)
	must(producer.Start())
	receipts, err := producer.Send(context.Background(), &rmq.Message{Topic: "orders", Body: []byte("12 EUR")})
	must(err)
	fmt.Println("sent", receipts[0].MessageID)
	must(producer.GracefulStop())

	consumer, err := rmq.NewSimpleConsumer(config("billing"), rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{"orders": rmq.SUB_ALL}))
	must(err)
	must(consumer.Start())
	for received := 0; received == 0; {
		messages, err := consumer.Receive(context.Background(), 16, 30*time.Second)
		if err != nil { // also when there is none
			continue
		}
		for _, message := range messages {
			fmt.Println("received", string(message.GetBody()))
			must(consumer.Ack(context.Background(), message))
			received++
		}
	}
	must(consumer.GracefulStop())
}
