import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.*;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import java.util.*;

public class StoreTool {
    public static void main(String[] a) throws Exception {
        MessageStoreConfig c = new MessageStoreConfig();
        c.setStorePathRootDir(a[1]);
        c.setStorePathCommitLog(a[1] + "/commitlog");
        c.setMappedFileSizeCommitLog(Integer.parseInt(a[2]));
        c.setMappedFileSizeConsumeQueue(Integer.parseInt(a[3]));
        c.setMaxHashSlotNum(100);
        c.setMaxIndexNum(400);
        c.setHaListenPort(0);
        DefaultMessageStore s = new DefaultMessageStore(c, new BrokerStatsManager("x", true), (t, q, l, tc, ts, b, p) -> {}, new BrokerConfig());
        if (!s.load()) { System.out.println("LOAD FAILED"); System.exit(2); }
        s.start();
        if (a[0].contains("p")) {
            int n = Integer.parseInt(a[4]);
            for (int i = 0; i < n; i++) {
                MessageExtBrokerInner m = new MessageExtBrokerInner();
                m.setTopic(i % 3 == 2 ? "B" : "A");
                m.setQueueId(i % 3 == 2 ? 7 : i % 3);
                m.setBody(("java" + i).getBytes());
                m.setTags("Tag");
                m.setKeys("jkey" + i);
                m.setBornHost(new InetSocketAddress("127.0.0.1", 1234));
                m.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
                m.setBornTimestamp(System.currentTimeMillis());
                m.setPropertiesString(MessageDecoder.messageProperties2String(m.getProperties()));
                PutMessageResult r = s.putMessage(m);
                if (!r.isOk()) { System.out.println("PUT " + r); System.exit(3); }
            }
            Thread.sleep(300);
        }
        for (String tq : new String[]{"A-0", "A-1", "B-7"}) {
            String t = tq.substring(0, 1); int q = Integer.parseInt(tq.substring(2));
            long off = s.getMinOffsetInQueue(t, q), max = s.getMaxOffsetInQueue(t, q);
            int n = 0; java.util.zip.CRC32 crc = new java.util.zip.CRC32();
            while (off < max) {
                GetMessageResult r = s.getMessage("g", t, q, off, 32, null);
                if (r.getStatus() != GetMessageStatus.FOUND) { System.out.println("GET " + tq + " " + off + " " + r.getStatus()); System.exit(4); }
                for (ByteBuffer b : r.getMessageBufferList()) {
                    byte[] x = new byte[b.remaining()]; b.duplicate().get(x);
                    MessageExt m = MessageDecoder.decode(b);
                    if (m.getQueueOffset() != off + (n - n)) {}
                    crc.update(x); n++;
                }
                off = r.getNextBeginOffset(); r.release();
            }
            System.out.println(tq + " min " + s.getMinOffsetInQueue(t, q) + " max " + max + " n " + n + " crc " + Long.toHexString(crc.getValue()));
        }
        for (String k : new String[]{"key0", "key149", "jkey1"}) {
            for (String t : new String[]{"A", "B"}) {
                QueryMessageResult r = s.queryMessage(t, k, 10, 0, Long.MAX_VALUE);
                System.out.println("query " + t + " " + k + " " + (r == null ? 0 : r.getMessageBufferList().size()));
            }
        }
        System.out.println("max " + s.getMaxPhyOffset() + " min " + s.getMinPhyOffset() + " behind " + s.dispatchBehindBytes());
        if (a[0].contains("k")) { System.out.flush(); Runtime.getRuntime().halt(9); }
        s.shutdown();
        System.out.println("done");
        System.exit(0);
    }
}
