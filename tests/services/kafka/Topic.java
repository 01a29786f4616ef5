import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** A client of the broker: one command a line on standard input, one answer a line. */
public final class Topic {
  private Topic() {}

  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", arguments[0]);
    settings.put("acks", "all");
    settings.put("linger.ms", "0");
    settings.put("reconnect.backoff.max.ms", "500");
    try (Admin admin = Admin.create(settings);
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      String line;
      while ((line = input.readLine()) != null) {
        System.out.println(answer(admin, producer, line.split(" ", 3)));
        System.out.flush();
      }
    }
  }

  private static String answer(Admin admin, KafkaProducer<String, String> producer, String[] words) {
    try {
      switch (words[0]) {
        case "make" -> admin.createTopics(List.of(new NewTopic(words[1], Integer.parseInt(words[2]), (short) 1)))
            .all().get();
        case "nodes" -> {
          return "ok " + admin.describeCluster().nodes().get().size();
        }
        case "send" -> {
          var record = new ProducerRecord<String, String>(words[1], words[2]);
          return "ok " + producer.send(record).get().offset();
        }
        case "committed" -> {
          var offsets = admin.listConsumerGroupOffsets(words[1]).partitionsToOffsetAndMetadata().get();
          long sum = 0;
          for (var offset : offsets.entrySet()) {
            if (offset.getKey().topic().equals(words[2]) && offset.getValue() != null) {
              sum += offset.getValue().offset();
            }
          }
          return "ok " + sum;
        }
        default -> throw new IllegalArgumentException("no such command");
      }
      return "ok 0";
    } catch (Exception error) {
      return "failed " + String.valueOf(error.getMessage()).replace('\n', ' ');
    }
  }
}
