import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Fill NAMESRV TOPIC PREFIX: one message of every kind and more, by the official producers.
 *
 * Prints a line per message that was acknowledged: kind, key, unique id, offset message id, between tabs (of a batch: those of all its
 * messages, separated by commas).
 */
public final class Fill {
    private static final int SINGLES = 40;
    private static final int BATCH = 6;
    private static final int LARGE = 2;
    private static final int DELAYED = 3;
    private static final int TRANSACTIONS = 9; // committed, rolled back and pending in turn
    private static final int SOON = 1;
    private static final int NEVER_HERE = 18; // two hours

    private final String topic;
    private final String prefix;

    private Fill(String topic, String prefix) {
        this.topic = topic;
        this.prefix = prefix;
    }

    public static void main(String[] words) throws Exception {
        Fill fill = new Fill(words[1], words[2]);
        TransactionMQProducer producer = new TransactionMQProducer("fill_producer");
        producer.setNamesrvAddr(words[0]);
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new ByNumber());
        producer.start();
        fill.singles(producer);
        fill.batch(producer);
        fill.large(producer);
        fill.delayed(producer, "soon", SOON);
        fill.delayed(producer, "long", NEVER_HERE);
        fill.transactions(producer);
        System.out.println("done");
        System.out.flush();
        producer.shutdown();
        System.exit(0);
    }

    private void singles(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < SINGLES; i++) {
            Message message = message("single", i, 2_000);
            switch (i % 8) {
                case 5 -> message.setTags(null);
                case 6 -> message.setKeys(List.of(message.getKeys(), "shared", "second-" + i));
                case 7 -> message = new Message(topic, ("bare " + i).getBytes(StandardCharsets.UTF_8));
                default -> message.setTags("Tag" + (char) ('A' + i % 3));
            }
            sent("single", message, producer.send(message));
        }
    }

    private void batch(DefaultMQProducer producer) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < BATCH; i++) {
            messages.add(message("batch", i, 0));
        }
        SendResult result = producer.send(messages);
        System.out.println("batch\t" + messages.get(0).getKeys() + "\t" + result.getMsgId() + "\t" + result.getOffsetMsgId());
    }

    private void large(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < LARGE; i++) {
            Message message = message("large", i, 9_000);
            sent("large", message, producer.send(message));
        }
    }

    private void delayed(DefaultMQProducer producer, String kind, int level) throws Exception {
        for (int i = 0; i < DELAYED; i++) {
            Message message = message(kind, i, 0);
            message.setDelayTimeLevel(level);
            sent(kind, message, producer.send(message));
        }
    }

    private void transactions(TransactionMQProducer producer) throws Exception {
        for (int i = 0; i < TRANSACTIONS; i++) {
            Message message = message("transaction", i, 0);
            sent("transaction", message, producer.sendMessageInTransaction(message, i));
        }
    }

    private Message message(String kind, int i, int size) {
        String key = prefix + "-" + kind + "-" + i;
        StringBuilder body = new StringBuilder(key);
        for (int line = 0; body.length() < size; line++) {
            body.append(" line ").append(line);
        }
        Message message = new Message(topic, "TagA", key, body.toString().getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("text", "Grüße, 世界");
        message.setFlag(i);
        return message;
    }

    private static void sent(String kind, Message message, SendResult result) {
        System.out.println(kind + "\t" + message.getKeys() + "\t" + result.getMsgId() + "\t" + result.getOffsetMsgId());
    }

    /** What a transaction's number says, and nothing more when asked again. */
    private static final class ByNumber implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object number) {
            return switch ((Integer) number % 3) {
                case 0 -> LocalTransactionState.COMMIT_MESSAGE;
                case 1 -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }
}
