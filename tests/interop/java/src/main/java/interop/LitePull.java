package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** litepull --mode subscribe|assign [--queues 0,2] [--begin true]: polls until its input ends, then commits what it has printed. */
final class LitePull {
    private static final long POLL_MS = 100;
    private static volatile boolean stopping;

    private LitePull() {
    }

    static void run(Arguments arguments) throws Exception {
        String topic = arguments.text("topic");
        boolean assign = arguments.text("mode", "subscribe").equals("assign");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(arguments.text("group"));
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        if (!assign) {
            consumer.subscribe(topic, arguments.text("expression", "*"));
        }
        consumer.start();
        if (assign) {
            Collection<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(topic));
            String chosen = arguments.text("queues", "");
            if (!chosen.isEmpty()) {
                List<String> ids = List.of(chosen.split(","));
                queues.removeIf(queue -> !ids.contains(Integer.toString(queue.getQueueId())));
            }
            consumer.assign(queues);
            if (arguments.text("begin", "false").equals("true")) {
                for (MessageQueue queue : queues) {
                    consumer.seekToBegin(queue);
                }
            }
        }
        Events.print("ready");
        Thread input = new Thread(LitePull::stopAtEndOfInput);
        input.setDaemon(true);
        input.start();
        while (!stopping) {
            for (MessageExt message : consumer.poll(POLL_MS)) {
                Events.message(message);
            }
        }
        consumer.commitSync();
        consumer.shutdown();
        Events.print("done");
    }

    private static void stopAtEndOfInput() {
        try {
            Events.waitForEndOfInput();
        } catch (java.io.IOException ended) {
            Events.failed("input", ended);
        }
        stopping = true;
    }
}
