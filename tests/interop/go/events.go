package main

import (
	"encoding/json"
	"hash/crc32"
	"io"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// fields of one line for the tests.
type fields map[string]interface{}

var printing sync.Mutex

func show(event string, line fields) {
	line["event"] = event
	text, err := json.Marshal(line)
	check(err)
	printing.Lock()
	defer printing.Unlock()
	_, err = os.Stdout.Write(append(text, '\n'))
	check(err)
}

func showSent(key string, result *primitive.SendResult) {
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = result.String()
	}
	show("sent", fields{
		"key": key, "status": status, "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID,
		"queueId": result.MessageQueue.QueueId, "queueOffset": result.QueueOffset,
	})
}

func showMessage(message *primitive.MessageExt) {
	head := message.Body
	if len(head) > 64 {
		head = head[:64]
	}
	show("message", fields{
		"topic": message.Topic, "key": message.GetKeys(), "tags": message.GetTags(), "msgId": message.MsgId,
		"queueId": message.Queue.QueueId, "queueOffset": message.QueueOffset, "bodySize": len(message.Body),
		"bodyCrc": crc32.ChecksumIEEE(message.Body), "bodyHead": string(head), "sysFlag": message.SysFlag,
		"flag": message.Flag, "phyOffset": message.CommitLogOffset, "bornTimestamp": message.BornTimestamp,
		"storeTimestamp": message.StoreTimestamp, "reconsumeTimes": message.ReconsumeTimes,
		"properties": message.GetProperties(), "consumedMs": time.Now().UnixMilli(),
	})
}

func queueIds(queues []*primitive.MessageQueue) []int {
	ids := []int{}
	for _, queue := range queues {
		ids = append(ids, queue.QueueId)
	}
	sort.Ints(ids)
	return ids
}

func waitForEndOfInput() {
	_, err := io.Copy(io.Discard, os.Stdin)
	check(err)
}
