package interop;

import java.util.Map;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * transaction --count N --outcomes commit,unknown,... --answers rollback,...: sends messages in transactions whose outcome
 * is the one of their number in turn, and answers checks of them likewise, until its input ends.
 */
final class Transactions implements TransactionListener {
    private final String[] outcomes;
    private final String[] answers;

    Transactions(Arguments arguments) {
        outcomes = arguments.text("outcomes", "commit").split(",");
        answers = arguments.text("answers", "commit").split(",");
    }

    static void run(Arguments arguments) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(arguments.text("group"));
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new Transactions(arguments));
        producer.start();
        producer.getDefaultMQProducerImpl().getmQClientFactory().updateTopicRouteInfoFromNameServer(
            arguments.text("topic"));
        producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        Events.print("ready");
        for (int i = 0; i < arguments.number("count", 0); i++) {
            Message message = Send.message(arguments, i);
            TransactionSendResult result = producer.sendMessageInTransaction(message, i);
            Events.sent(message.getKeys(), result);
        }
        Events.print("ended");
        Events.waitForEndOfInput();
        producer.shutdown();
        Events.print("done");
    }

    private static LocalTransactionState state(String[] states, int number) {
        return switch (states[number % states.length]) {
            case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object number) {
        return state(outcomes, (Integer) number);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        Events.print("checked", Map.of("key", message.getKeys(), "msgId", message.getMsgId()));
        return state(answers, Integer.parseInt(message.getUserProperty("number")));
    }
}
