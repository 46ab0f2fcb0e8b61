import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.TreeSet;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.*;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** A store with extension units: ROOT COUNT FIRST MODE puts messages number FIRST and up into queue T-0, then prints what
 *  each tag gets. MODE: "b" with filter bits, "k" ends without closing, "o" without extensions. */
public class ExtTool {
    public static void main(String[] a) throws Exception {
        int count = Integer.parseInt(a[1]), first = Integer.parseInt(a[2]);
        MessageStoreConfig c = new MessageStoreConfig();
        c.setStorePathRootDir(a[0]);
        c.setStorePathCommitLog(a[0] + "/commitlog");
        c.setMappedFileSizeCommitLog(16384);
        c.setMappedFileSizeConsumeQueue(1000);
        c.setMappedFileSizeConsumeQueueExt(1024);
        c.setEnableConsumeQueueExt(!a[3].contains("o"));
        c.setMaxHashSlotNum(100);
        c.setMaxIndexNum(400);
        c.setHaListenPort(0);
        DefaultMessageStore s = new DefaultMessageStore(c, new BrokerStatsManager("x", true), (t, q, l, tc, ts, b, p) -> {}, new BrokerConfig());
        if (a[3].contains("b")) s.getDispatcherList().addFirst(request -> request.setBitMap(new byte[]{1, 2, 3, (byte) request.getConsumeQueueOffset()}));
        if (!s.load()) { System.out.println("LOAD FAILED"); System.exit(2); }
        s.start();
        for (int i = first; i < first + count; i++) {
            MessageExtBrokerInner m = new MessageExtBrokerInner();
            m.setTopic("T");
            m.setQueueId(0);
            m.setBody(("number " + i).getBytes());
            m.setTags("Tag" + i % 3);
            m.setBornHost(new InetSocketAddress("127.0.0.1", 1234));
            m.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
            m.setBornTimestamp(System.currentTimeMillis());
            m.setPropertiesString(MessageDecoder.messageProperties2String(m.getProperties()));
            PutMessageResult r = s.putMessage(m);
            if (!r.isOk()) { System.out.println("PUT " + r); System.exit(3); }
        }
        while (s.dispatchBehindBytes() > 0) Thread.sleep(1);
        for (String tag : new String[]{"Tag0", "Tag1", "Tag2", "TagX"}) {
            SubscriptionData subscription = FilterAPI.buildSubscriptionData("T", tag);
            TreeSet<Long> offsets = new TreeSet<>();
            for (long at = 0, max = s.getMaxOffsetInQueue("T", 0); at < max; ) {
                GetMessageResult r = s.getMessage("g", "T", 0, at, 32, new DefaultMessageFilter(subscription));
                if (r.getNextBeginOffset() <= at) { System.out.println("GET " + at + " " + r.getStatus()); System.exit(4); }
                for (ByteBuffer b : r.getMessageBufferList()) offsets.add(MessageDecoder.decode(b).getQueueOffset());
                at = r.getNextBeginOffset();
                r.release();
            }
            System.out.println(tag + " " + offsets);
        }
        if (a[3].contains("k")) { System.out.flush(); Runtime.getRuntime().halt(9); }
        s.shutdown();
        System.exit(0);
    }
}
