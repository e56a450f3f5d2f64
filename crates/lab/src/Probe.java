import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Array;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Reads values of servers over JMX, for as long as somebody asks: one request a line, one answer a line.
 * A request is "HOST:PORT TAB PATTERN-OF-BEANS TAB ATTRIBUTE[,ATTRIBUTE...]". An answer is JSON:
 * {"values": [[BEAN, ATTRIBUTE, VALUE], ...]} or {"error": TEXT}.
 */
public final class Probe {
    private static final Map<String, JMXConnector> CONNECTORS = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String request; (request = requests.readLine()) != null; ) {
            String answer;
            try {
                answer = answer(request.split("\t"));
            } catch (Exception error) {
                answer = "{\"error\":" + json(error.toString()) + "}";
            }
            System.out.write((answer + "\n").getBytes(StandardCharsets.UTF_8));
            System.out.flush();
        }
        System.exit(0);
    }

    private static String answer(String[] request) throws Exception {
        String address = request[0];
        if (CONNECTORS.containsKey(address)) {
            try {
                return read(address, request);
            } catch (IOException ended) {
                // The server may be another one by now, at the same address.
                forget(address);
            }
        }
        try {
            return read(address, request);
        } catch (IOException error) {
            forget(address);
            throw error;
        }
    }

    private static String read(String address, String[] request) throws Exception {
        MBeanServerConnection server = connector(address).getMBeanServerConnection();
        List<String> values = new ArrayList<>();
        for (ObjectName bean : server.queryNames(new ObjectName(request[1]), null)) {
            for (String attribute : request[2].split(",")) {
                Object value = server.getAttribute(bean, attribute);
                values.add("[" + json(bean.toString()) + "," + json(attribute) + "," + json(value) + "]");
            }
        }
        return "{\"values\":[" + String.join(",", values) + "]}";
    }

    private static JMXConnector connector(String address) throws IOException {
        JMXConnector connector = CONNECTORS.get(address);
        if (connector == null) {
            var url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://" + address + "/jmxrmi");
            connector = JMXConnectorFactory.connect(url, Map.of("jmx.remote.x.client.connection.check.period", 0L));
            CONNECTORS.put(address, connector);
        }
        return connector;
    }

    private static void forget(String address) {
        // Not closed: closing talks to the server, which may not answer any more.
        CONNECTORS.remove(address);
    }

    private static String json(Object value) {
        if (value == null || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Number number) {
            double real = number.doubleValue();
            return Double.isNaN(real) || Double.isInfinite(real) ? "null" : value.toString();
        }
        if (value instanceof Map<?, ?> map) {
            List<String> entries = new ArrayList<>();
            map.forEach((key, each) -> entries.add(json(String.valueOf(key)) + ":" + json(each)));
            return "{" + String.join(",", entries) + "}";
        }
        if (value instanceof Collection<?> collection) {
            List<String> items = new ArrayList<>();
            collection.forEach(each -> items.add(json(each)));
            return "[" + String.join(",", items) + "]";
        }
        if (value.getClass().isArray()) {
            List<Object> items = new ArrayList<>();
            for (int i = 0; i < Array.getLength(value); i++) {
                items.add(Array.get(value, i));
            }
            return json(items);
        }
        var text = new StringBuilder("\"");
        for (char c : value.toString().toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < ' ') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        return text.append('"').toString();
    }
}
