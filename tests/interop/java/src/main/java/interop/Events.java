package interop;

import com.alibaba.fastjson.JSON;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What the tests read: one JSON object per line, whole lines whatever thread prints. */
final class Events {
    private Events() {
    }

    static synchronized void print(String event, Map<String, Object> fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.putAll(fields);
        System.out.println(JSON.toJSONString(line));
        System.out.flush();
    }

    static void print(String event) {
        print(event, Map.of());
    }

    static void sent(String key, SendResult result) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("key", key);
        fields.put("status", result.getSendStatus().name());
        fields.put("msgId", result.getMsgId());
        fields.put("offsetMsgId", result.getOffsetMsgId());
        fields.put("queueId", result.getMessageQueue().getQueueId());
        fields.put("queueOffset", result.getQueueOffset());
        print("sent", fields);
    }

    static void failed(String key, Throwable error) {
        print("failed", Map.of("key", key, "error", String.valueOf(error)));
    }

    static void message(MessageExt message) {
        CRC32 crc = new CRC32();
        crc.update(message.getBody());
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        fields.put("key", message.getKeys());
        fields.put("tags", message.getTags());
        fields.put("msgId", message.getMsgId());
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("bodySize", message.getBody().length);
        fields.put("bodyCrc", crc.getValue());
        fields.put("bodyHead", new String(message.getBody(), 0, Math.min(64, message.getBody().length),
            StandardCharsets.UTF_8));
        fields.put("sysFlag", message.getSysFlag());
        fields.put("flag", message.getFlag());
        fields.put("phyOffset", message.getCommitLogOffset());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("properties", message.getProperties());
        fields.put("consumedMs", System.currentTimeMillis());
        print("message", fields);
    }

    /** The queues of one topic; retry topics are the client's own business. */
    static List<Integer> queueIds(Collection<MessageQueue> queues, String topic) {
        List<Integer> ids = new ArrayList<>();
        for (MessageQueue queue : queues) {
            if (queue.getTopic().equals(topic)) {
                ids.add(queue.getQueueId());
            }
        }
        ids.sort(null);
        return ids;
    }

    static void waitForEndOfInput() throws IOException {
        while (System.in.read() >= 0) {
            continue;
        }
    }
}
