package interop;

import java.util.HashMap;
import java.util.Map;

/** A command followed by pairs of --name value. */
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
}
