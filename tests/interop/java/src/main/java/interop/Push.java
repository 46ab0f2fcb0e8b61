package interop;

import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * push [--model clustering|broadcasting] [--orderly true] [--expression E or --sql E] [--trace true]; prints queues and
 * messages. --fail true: every message is to be retried, --attempts N times. --poll MS and --patience MS: as of Send.
 */
final class Push {
    private static final long LOOK_MS = 50;

    private Push() {
    }

    static void run(Arguments arguments) throws Exception {
        String topic = arguments.text("topic");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments.text("group"), arguments.account(),
            new AllocateMessageQueueAveragely(), arguments.text("trace", "false").equals("true"), null);
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName(arguments.text("instance", "DEFAULT"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        setModel(consumer, arguments.text("model", "clustering").toUpperCase());
        consumer.setPollNameServerInterval(arguments.number("poll", 30_000));
        consumer.setMqClientApiTimeout(arguments.number("patience", 3_000));
        consumer.setMaxReconsumeTimes(arguments.number("attempts", -1));
        boolean fails = arguments.text("fail", "false").equals("true");
        String sql = arguments.text("sql", "");
        if (sql.isEmpty())
            consumer.subscribe(topic, arguments.text("expression", "*"));
        else
            consumer.subscribe(topic, MessageSelector.bySql(sql));
        if (arguments.text("orderly", "false").equals("true")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(Events::message);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(Events::message);
                return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        try {
            consumer.start();
        } catch (MQClientException refused) {
            Events.failed("start", refused);
            return;
        }
        Events.print("ready", Map.of("clientId",
            consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId()));
        watchQueues(consumer, topic);
        Events.waitForEndOfInput();
        consumer.shutdown();
        Events.print("done");
    }

    /** The enum lives in another package in 5.x; its names are the same. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void setModel(DefaultMQPushConsumer consumer, String name) throws ReflectiveOperationException {
        Class type = DefaultMQPushConsumer.class.getMethod("getMessageModel").getReturnType();
        DefaultMQPushConsumer.class.getMethod("setMessageModel", type).invoke(consumer, Enum.valueOf(type, name));
    }

    /** Prints the consumer's queues whenever they have changed. */
    static void watchQueues(DefaultMQPushConsumer consumer, String topic) {
        Thread watch = new Thread(() -> printQueues(consumer, topic));
        watch.setDaemon(true);
        watch.start();
    }

    private static void printQueues(DefaultMQPushConsumer consumer, String topic) {
        List<Integer> known = null;
        try {
            while (true) {
                List<Integer> queues = Events.queueIds(
                    consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet(), topic);
                if (!queues.equals(known)) {
                    known = queues;
                    Events.print("queues", Map.of("queues", queues));
                }
                Thread.sleep(LOOK_MS);
            }
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }
}
