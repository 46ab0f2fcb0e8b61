package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * attempts --accounts NAME/ACCESS/SECRET/NAMESRV,... --topic T --requests R: all accounts send, send a batch, send in a
 * transaction, request (a message of R, to which consumers of R reply) and pull; prints the outcome of each. Then a consumer of each
 * account, of group T_NAME, prints what it gets of T until the input ends. Pulls are of group T_NAME_pulls.
 */
final class Attempts {
    private static final int PATIENCE_MS = 30_000; // the machine may be busy
    private final Arguments arguments;
    private final String topic;
    private final String requests;
    private final String name;
    private final String nameServer;
    private final RPCHook hook;

    private Attempts(Arguments arguments, String[] account) {
        this.arguments = arguments;
        topic = arguments.text("topic");
        requests = arguments.text("requests");
        name = account[0];
        hook = Arguments.hook(account[1], account[2]);
        nameServer = account[3];
    }

    static void run(Arguments arguments) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (String account : arguments.text("accounts").split(",")) {
            Attempts attempts = new Attempts(arguments, account.split("/"));
            Thread thread = new Thread(attempts::all);
            thread.start();
            if (threads.isEmpty()) {
                thread.join(); // it loads classes, which takes a second; the others would do that at the same time
            }
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Events.print("ready");
        Events.waitForEndOfInput();
        Events.print("done");
    }

    private void all() {
        try {
            TransactionMQProducer producer = new TransactionMQProducer(topic + "_producers_" + name, hook);
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName(name);
            producer.setSendMsgTimeout(PATIENCE_MS);
            producer.setMqClientApiTimeout(PATIENCE_MS);
            producer.setRetryTimesWhenSendFailed(0);
            producer.setTransactionListener(new Transactions(arguments));
            producer.start();
            consume(producer);
            attempt("send", () -> producer.send(message(topic, "send")));
            attempt("batch", () -> producer.send(List.of(message(topic, "batch-0"), message(topic, "batch-1"))));
            attempt("transaction", () -> producer.sendMessageInTransaction(message(topic, "transaction"), 0));
            attempt("request", () -> request(producer));
            attempt("pull", this::pull);
        } catch (Exception failed) {
            Events.failed(name, failed);
        }
    }

    private void attempt(String operation, Callable<?> work) {
        Map<String, Object> outcome = new LinkedHashMap<>(Map.of("account", name, "operation", operation, "code", 0));
        try {
            work.call();
        } catch (Exception failed) {
            outcome.put("code", -1);
            outcome.put("error", String.valueOf(failed));
            for (Throwable each = failed; each != null; each = each.getCause()) { // the answer of a server, if there was one
                if (each instanceof MQBrokerException refused) {
                    outcome.put("code", refused.getResponseCode());
                    outcome.put("error", refused.getErrorMessage());
                } else if (each instanceof MQClientException refused) {
                    outcome.put("code", refused.getResponseCode());
                    outcome.put("error", refused.getErrorMessage());
                }
            }
        }
        Events.print("outcome", outcome);
    }

    private Message message(String where, String operation) {
        String key = name + "-" + operation;
        return new Message(where, "TagA", key, key.getBytes(StandardCharsets.UTF_8));
    }

    /** With a selector, because 5.3.3 ends other requests when they are sent (apache/rocketmq issue 9319). */
    private Object request(TransactionMQProducer producer) throws Exception {
        CountDownLatch ended = new CountDownLatch(1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        producer.request(message(requests, "request"), (queues, sent, index) -> queues.get(0), 0, new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                ended.countDown();
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error);
                ended.countDown();
            }
        }, PATIENCE_MS);
        ended.await();
        if (failure.get() != null) {
            throw new Exception(failure.get());
        }
        return null;
    }

    private Object pull() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(topic + "_" + name + "_pulls", hook);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(name);
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.start();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            consumer.pull(queue, "*", 0, 32);
        }
        return null;
    }

    private void consume(TransactionMQProducer replies) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(topic + "_" + name, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(name);
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.subscribe(requests, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (message.getTopic().equals(requests)) {
                    attempt("reply", () -> replies.send(MessageUtil.createReplyMessage(message, message.getBody())));
                } else {
                    Events.print("received", Map.of("account", name, "key", message.getKeys()));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }
}
