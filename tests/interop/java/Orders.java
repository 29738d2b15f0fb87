import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The command line of a program: {@code --name value} pairs and {@code --flag} alone. */
final class Orders {
    private final Map<String, String> values = new HashMap<>();

    Orders(String[] args) {
        for (int at = 0; at < args.length; at++) {
            if (!args[at].startsWith("--")) {
                throw new IllegalArgumentException("expected --name, got " + args[at]);
            }
            boolean alone = at + 1 == args.length || args[at + 1].startsWith("--");
            values.put(args[at].substring(2), alone ? "true" : args[++at]);
        }
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(values.getOrDefault(name, Integer.toString(otherwise)));
    }

    boolean flag(String name) {
        return "true".equals(values.get(name));
    }

    List<String> list(String name) {
        List<String> parts = new ArrayList<>();
        for (String part : values.getOrDefault(name, "").split(",")) {
            if (!part.isEmpty()) {
                parts.add(part);
            }
        }
        return parts;
    }
}
