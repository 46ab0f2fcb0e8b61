package interop;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * send --mode sync|async|oneway|batch [--shards N: a selector keeps one of N shards in one queue].
 * send --mode stream [--levels N: delay levels 1 to N in turn] [--pause MS] [--retries N] [--timeout MS]: one after the other
 * until the input ends, each tried once unless told otherwise, so that no message is stored twice by the client itself.
 * --poll MS: how often routes are asked for. --patience MS: how long an answer of a name server is waited for.
 * [--timer setDelayTimeMs|setDelayTimeSec|setDeliverTimeMs|ons --delay MS: message i is due so much and i ms later].
 * [--property NAME --values A,B,...: message i has the i-th value].
 */
final class Send {
    private Send() {
    }

    static void run(Arguments arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(arguments.text("group"), arguments.account(),
            arguments.text("trace", "false").equals("true"), null);
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setSendMsgTimeout(10_000);
        producer.setPollNameServerInterval(arguments.number("poll", 30_000));
        producer.setMqClientApiTimeout(arguments.number("patience", 3_000));
        producer.start();
        Events.print("ready");
        if (arguments.text("mode", "sync").equals("stream")) {
            stream(producer, arguments);
            producer.shutdown();
            Events.print("done");
            return;
        }
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < arguments.number("count", 1); i++) {
            messages.add(message(arguments, i));
        }
        int shards = arguments.number("shards", 0);
        switch (arguments.text("mode", "sync")) {
            case "sync" -> {
                for (int i = 0; i < messages.size(); i++) {
                    Message message = messages.get(i);
                    Events.sent(message.getKeys(), shards == 0 ? producer.send(message)
                        : producer.send(message, (queues, sent, shard) -> queues.get((Integer) shard % queues.size()),
                            i % shards));
                }
            }
            case "async" -> async(producer, messages);
            case "oneway" -> {
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
            }
            case "batch" -> Events.sent("batch", producer.send(messages));
            default -> throw new IllegalArgumentException("no such mode");
        }
        if (arguments.text("stay", "false").equals("true")) { // a 5.x client that ends at once loses its traces
            Events.waitForEndOfInput();
        }
        producer.shutdown();
        Events.print("done");
    }

    private static void stream(DefaultMQProducer producer, Arguments arguments) throws Exception {
        producer.setRetryTimesWhenSendFailed(arguments.number("retries", 0));
        producer.setSendMsgTimeout(arguments.number("timeout", 3_000));
        Thread end = new Thread(() -> {
            try {
                Events.waitForEndOfInput();
            } catch (IOException gone) {
                return;
            }
        });
        end.start();
        int levels = arguments.number("levels", 0);
        int shards = arguments.number("shards", 0);
        for (int i = 0; end.isAlive(); i++) {
            Message message = message(arguments, i);
            if (levels > 0) {
                message.setDelayTimeLevel(1 + i % levels);
            }
            try {
                Events.sent(message.getKeys(), shards == 0 ? producer.send(message)
                    : producer.send(message, (queues, sent, shard) -> queues.get((Integer) shard % queues.size()),
                        i % shards));
            } catch (MQClientException | RemotingException | MQBrokerException failed) {
                Events.failed(message.getKeys(), failed);
            }
            Thread.sleep(arguments.number("pause", 5));
        }
    }

    static Message message(Arguments arguments, int i) {
        String name = arguments.text("prefix") + "-" + i;
        StringBuilder body = new StringBuilder(name);
        int size = arguments.number("size", 0);
        for (int line = 0; body.length() < size; line++) {
            body.append(" line ").append(line);
        }
        String[] tags = arguments.text("tags", "TagA").split(",");
        Message message = new Message(arguments.text("topic"), tags[i % tags.length], name,
            body.toString().getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("number", Integer.toString(i));
        message.putUserProperty("text", "Grüße, 世界");
        message.setFlag(i);
        setTimer(message, arguments.text("timer", ""), arguments.number("delay", 0) + i);
        if (!arguments.text("property", "").isEmpty()) {
            MessageAccessor.putProperty(message, arguments.text("property"), arguments.text("values").split(",")[i]);
        }
        return message;
    }

    /** The setters are those of 5.x; this is compiled for 4.x, too. */
    private static void setTimer(Message message, String setter, long delayMs) {
        long dueMs = System.currentTimeMillis() + delayMs;
        if (setter.equals("ons")) {
            message.putUserProperty("__STARTDELIVERTIME", Long.toString(dueMs));
        } else if (!setter.isEmpty()) {
            long value = switch (setter) {
                case "setDelayTimeMs" -> delayMs;
                case "setDelayTimeSec" -> delayMs / 1000;
                default -> dueMs;
            };
            try {
                Message.class.getMethod(setter, long.class).invoke(message, value);
            } catch (ReflectiveOperationException missing) {
                throw new IllegalArgumentException(missing);
            }
        }
    }

    private static void async(DefaultMQProducer producer, List<Message> messages) throws Exception {
        CountDownLatch missing = new CountDownLatch(messages.size());
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    Events.sent(message.getKeys(), result);
                    missing.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    Events.failed(message.getKeys(), error);
                    missing.countDown();
                }
            });
        }
        missing.await();
    }
}
