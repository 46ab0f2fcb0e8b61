package interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * request --mode sync|callback --count N [--size S] [--timeout MS]: prints each reply.
 * reply: a consumer that answers each message M with "re: M", until its input ends; prints its queues.
 */
final class RequestReply {
    private RequestReply() {
    }

    static void request(Arguments arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(arguments.text("group"));
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setSendMsgTimeout(10_000);
        producer.start();
        Events.print("ready");
        int count = arguments.number("count", 1);
        int timeout = arguments.number("timeout", 20_000);
        boolean withCallback = arguments.text("mode", "sync").equals("callback");
        CountDownLatch missing = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            Message message = Send.message(arguments, i);
            if (withCallback) {
                // With a selector, because 5.3.3 ends other requests when they are sent (apache/rocketmq issue 9319).
                producer.request(message, (queues, sent, index) -> queues.get((Integer) index % queues.size()), i,
                    new RequestCallback() {
                    @Override
                    public void onSuccess(Message reply) {
                        show(message.getKeys(), reply);
                        missing.countDown();
                    }

                    @Override
                    public void onException(Throwable error) {
                        Events.failed(message.getKeys(), error);
                        missing.countDown();
                    }
                }, timeout);
                continue;
            }
            try {
                show(message.getKeys(), producer.request(message, timeout));
            } catch (Exception error) {
                Events.failed(message.getKeys(), error);
            }
            missing.countDown();
        }
        missing.await();
        producer.shutdown();
        Events.print("done");
    }

    static void reply(Arguments arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(arguments.text("group") + "_replies");
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setSendMsgTimeout(10_000);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments.text("group"));
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                try {
                    byte[] body = ("re: " + new String(message.getBody(), StandardCharsets.UTF_8))
                        .getBytes(StandardCharsets.UTF_8);
                    Events.sent(message.getKeys(), producer.send(MessageUtil.createReplyMessage(message, body)));
                } catch (Exception error) {
                    Events.failed(message.getKeys(), error);
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Events.print("ready");
        Push.watchQueues(consumer, arguments.text("topic"));
        Events.waitForEndOfInput();
        consumer.shutdown();
        producer.shutdown();
        Events.print("done");
    }

    private static void show(String key, Message reply) {
        CRC32 crc = new CRC32();
        crc.update(reply.getBody());
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("key", key);
        fields.put("bodySize", reply.getBody().length);
        fields.put("bodyCrc", crc.getValue());
        fields.put("properties", reply.getProperties());
        Events.print("reply", fields);
    }
}
