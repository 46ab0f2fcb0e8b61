import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** Fills a cluster so that every command of mqadmin has something to say: topic `orders` with 4 queues and 20 messages,
 *  6 more after group `stopped` has left, and groups of every kind that stay as long as this JVM.
 *
 *  Prints a line `name value` for each message: its key, unique id, id of the broker, queue and offset. */
public class Prepare {
    static final int QUEUES = 4, FIRST = 20, LATER = 6;
    private static final Map<String, Set<String>> consumed = new ConcurrentHashMap<>();

    static void run(String nameServer, PrintStream out) {
        try {
            DefaultMQProducer producer = new DefaultMQProducer("shop", true);
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName("shop1");
            producer.setClientIP("127.0.0.1");
            producer.start();
            send(producer, 0, FIRST, out);
            DefaultMQPushConsumer stopped = push(nameServer, "stopped", "*", MessageModel.CLUSTERING, false);
            push(nameServer, "billing", "*", MessageModel.CLUSTERING, true);
            push(nameServer, "audit", "TagA", MessageModel.CLUSTERING, false);
            push(nameServer, "radio", "*", MessageModel.BROADCASTING, false);
            pull(nameServer, "puller");
            await("stopped", FIRST);
            awaitRetryQueue(stopped);
            stopped.shutdown();
            send(producer, FIRST, LATER, out);
            await("billing", FIRST + LATER);
            await("audit", (FIRST + LATER) / 2);
            await("radio", FIRST + LATER);
            await("puller", FIRST + LATER);
            out.println("done");
        } catch (Exception e) {
            e.printStackTrace(out);
        }
    }

    private static void send(DefaultMQProducer producer, int first, int count, PrintStream out) throws Exception {
        String broker = producer.fetchPublishMessageQueues("orders").get(0).getBrokerName();
        for (int i = first; i < first + count; i++) {
            byte[] body = String.format("body %02d", i).getBytes(StandardCharsets.UTF_8);
            Message message = new Message("orders", i % 2 == 0 ? "TagA" : "TagB", String.format("key%02d", i), body);
            message.putUserProperty("colour", i % 3 == 0 ? "red" : "blue");
            SendResult sent = producer.send(message, new MessageQueue("orders", broker, i % QUEUES));
            out.println("sent " + message.getKeys() + " " + sent.getMsgId() + " " + sent.getOffsetMsgId() + " "
                + sent.getMessageQueue().getQueueId() + " " + sent.getQueueOffset());
        }
    }

    private static DefaultMQPushConsumer push(String nameServer, String group, String tags, MessageModel model,
                                              boolean trace) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, trace);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group + "1");
        consumer.setClientIP("127.0.0.1");
        consumer.setMessageModel(model);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("orders", tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> note(group, message));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void pull(String nameServer, String group) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group + "1");
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("orders", "*");
        consumer.start();
        Thread thread = new Thread(() -> {
            while (true) {
                consumer.poll(100).forEach(message -> note(group, message));
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static void note(String group, MessageExt message) {
        consumed.computeIfAbsent(group, name -> ConcurrentHashMap.newKeySet()).add(message.getKeys());
    }

    /** Its offset shows in the group's progress. */
    private static void awaitRetryQueue(DefaultMQPushConsumer consumer) throws InterruptedException {
        long deadline = System.currentTimeMillis() + 60_000;
        while (consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .noneMatch(queue -> queue.getTopic().startsWith("%RETRY%"))) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("no retry queue");
            }
            Thread.sleep(20);
        }
    }

    private static void await(String group, int count) throws InterruptedException {
        long deadline = System.currentTimeMillis() + 60_000;
        while (consumed.getOrDefault(group, Set.of()).size() < count) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(group + " has consumed " + consumed.get(group) + " of " + count);
            }
            Thread.sleep(20);
        }
    }
}
