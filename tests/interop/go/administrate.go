package main

import (
	"context"
	"sort"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
)

// administrate creates --topic with --queues, looks at it, and deletes --remove.
func administrate(o orders) error {
	tool, err := admin.NewAdmin(admin.WithResolver(o.nameServers()))
	if err != nil {
		return err
	}
	background := context.Background()
	for _, topic := range []string{o["topic"], o["remove"]} {
		err = tool.CreateTopic(background, admin.WithTopicCreate(topic),
			admin.WithBrokerAddrCreate(o["broker"]), admin.WithReadQueueNums(o.number("queues", 8)),
			admin.WithWriteQueueNums(o.number("queues", 8)))
		if err != nil {
			return err
		}
	}
	queues := []int{}
	// The broker tells its name server a little later.
	for end := time.Now().Add(20 * time.Second); len(queues) == 0 && time.Now().Before(end); {
		found, wrong := tool.FetchPublishMessageQueues(background, o["topic"])
		if wrong != nil {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		for _, queue := range found {
			queues = append(queues, queue.QueueId)
		}
	}
	err = tool.DeleteTopic(background, admin.WithTopicDelete(o["remove"]),
		admin.WithBrokerAddrDelete(o["broker"]), admin.WithNameSrvAddr([]string{o["namesrv"]}))
	if err != nil {
		return err
	}
	topics, err := tool.FetchAllTopicList(background)
	if err != nil {
		return err
	}
	listed := map[string]bool{}
	for _, name := range topics.TopicList {
		listed[name] = true
	}
	groups, err := tool.GetAllSubscriptionGroup(background, o["broker"], 3*time.Second)
	if err != nil {
		return err
	}
	names := []string{}
	for name := range groups.SubscriptionGroupTable {
		names = append(names, name)
	}
	sort.Strings(names)
	sort.Ints(queues)
	report("administrated", fields{"queues": queues, "created": listed[o["topic"]],
		"deleted": !listed[o["remove"]], "groups": names})
	return tool.Close()
}
