package interop;

import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** A command followed by pairs of --name value. `send` and `push` sign with --accessKey K --secretKey S. */
final class Arguments {
    final String command;
    private final Map<String, String> values = new HashMap<>();

    Arguments(String[] words) {
        command = words[0];
        for (int i = 1; i < words.length; i += 2) {
            values.put(words[i].substring(2), words[i + 1]);
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(text(name, Integer.toString(otherwise)));
    }

    /** Signs the requests of a client; null: they are not signed. */
    RPCHook account() {
        return hook(text("accessKey", ""), text("secretKey", ""));
    }

    static RPCHook hook(String accessKey, String secretKey) {
        return accessKey.isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(accessKey, secretKey));
    }
}
