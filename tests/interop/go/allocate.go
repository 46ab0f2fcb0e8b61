package main

import (
	"fmt"
	"sort"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// allocate --queues Q --members M: as Allocate.java, for the strategies that this client has and computes as Java does.
// Its room strategy takes queues of other rooms, its nearby one is averagely, and its consistent hash another one.
func allocate(given arguments) {
	strategies := map[string]consumer.AllocateStrategy{
		"AVG":           consumer.AllocateByAveragely,
		"AVG_BY_CIRCLE": consumer.AllocateByAveragelyCircle,
		"CONFIG": consumer.AllocateByConfig([]*primitive.MessageQueue{
			{Topic: "T", BrokerName: "r1@b", QueueId: 3}, {Topic: "T", BrokerName: "r0@b", QueueId: 0},
		}),
	}
	for queueCount := 1; queueCount <= given.number("queues", 1); queueCount++ {
		for memberCount := 1; memberCount <= given.number("members", 1); memberCount++ {
			for name, strategy := range strategies {
				show("allocation", fields{
					"strategy": name, "queues": queueCount, "members": memberCount,
					"shares": sharesOf(strategy, queueCount, memberCount),
				})
			}
		}
	}
	show("done", fields{})
}

func sharesOf(strategy consumer.AllocateStrategy, queueCount, memberCount int) [][]string {
	queues := []*primitive.MessageQueue{}
	for i := 0; i < queueCount; i++ {
		queues = append(queues, &primitive.MessageQueue{Topic: "T", BrokerName: fmt.Sprintf("r%d@b", i%2), QueueId: i / 2})
	}
	sort.Slice(queues, func(i, j int) bool {
		if queues[i].BrokerName != queues[j].BrokerName {
			return queues[i].BrokerName < queues[j].BrokerName
		}
		return queues[i].QueueId < queues[j].QueueId
	})
	members := []string{}
	for i := 0; i < memberCount; i++ {
		members = append(members, fmt.Sprintf("r%d-%d", i%3, i))
	}
	sort.Strings(members)
	shares := [][]string{}
	for _, member := range members {
		share := []string{}
		for _, queue := range strategy("g", member, queues, members) {
			share = append(share, fmt.Sprintf("%s:%d", queue.BrokerName, queue.QueueId))
		}
		shares = append(shares, share)
	}
	return shares
}
