package interop;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * allocate --queues Q --members M: the share of each member by each strategy, for all numbers up to these. Queues lie in
 * turn on r0@b and r1@b; members are room-number, in the rooms r0 to r2. By configuration each member has two queues.
 */
final class Allocate {
    private Allocate() {
    }

    static void run(Arguments arguments) {
        for (int queues = 1; queues <= arguments.number("queues", 1); queues++) {
            for (int members = 1; members <= arguments.number("members", 1); members++) {
                for (AllocateMessageQueueStrategy strategy : strategies()) {
                    show(strategy, queues, members);
                }
            }
        }
        Events.print("done");
    }

    private static List<AllocateMessageQueueStrategy> strategies() {
        AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
        byRoom.setConsumeridcs(Set.of("r0"));
        AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
        byConfig.setMessageQueueList(List.of(new MessageQueue("T", "r1@b", 3), new MessageQueue("T", "r0@b", 0)));
        return List.of(new AllocateMessageQueueAveragely(), new AllocateMessageQueueAveragelyByCircle(), byConfig,
            byRoom, new AllocateMessageQueueConsistentHash(),
            new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(),
                new AllocateMachineRoomNearby.MachineRoomResolver() {
                    @Override
                    public String brokerDeployIn(MessageQueue queue) {
                        return queue.getBrokerName().split("@")[0];
                    }

                    @Override
                    public String consumerDeployIn(String clientId) {
                        return clientId.split("-")[0];
                    }
                }));
    }

    private static void show(AllocateMessageQueueStrategy strategy, int queueCount, int memberCount) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 0; i < queueCount; i++) {
            queues.add(new MessageQueue("T", "r" + i % 2 + "@b", i / 2));
        }
        List<String> members = new ArrayList<>();
        for (int i = 0; i < memberCount; i++) {
            members.add("r" + i % 3 + "-" + i);
        }
        Collections.sort(queues);
        Collections.sort(members);
        List<List<String>> shares = new ArrayList<>();
        for (String member : members) {
            List<String> share = new ArrayList<>();
            for (MessageQueue queue : strategy.allocate("g", member, queues, members)) {
                share.add(queue.getBrokerName() + ":" + queue.getQueueId());
            }
            shares.add(share);
        }
        Events.print("allocation", Map.of("strategy", strategy.getName(), "queues", queueCount, "members", memberCount,
            "shares", shares));
    }
}
