import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Settle NAMESRV: a producer of Fill's group that commits every transaction it is asked about, until its input ends. */
public final class Settle {
    private Settle() {
    }

    public static void main(String[] words) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("fill_producer");
        producer.setNamesrvAddr(words[0]);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                throw new IllegalStateException("nothing is sent here");
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        while (System.in.read() >= 0) {
            continue;
        }
        producer.shutdown();
        System.exit(0);
    }
}
