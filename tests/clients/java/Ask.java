import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Arrays;

/** Sends each body to one URL with the JDK's client as it comes: it offers h2c with every request. */
public class Ask {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        String method = arguments[0];
        URI url = URI.create(arguments[1]);
        for (String body : Arrays.copyOfRange(arguments, 2, arguments.length)) {
            HttpRequest.Builder request = HttpRequest.newBuilder(url);
            request.header("Content-Type", "application/json");
            String token = System.getenv("TOKEN");
            if (token != null) {
                request.header("Authorization", "Bearer " + token);
            }
            request.method(method, BodyPublishers.ofString(body));
            var answer = client.send(request.build(), BodyHandlers.ofString());
            System.out.println(answer.version() + " " + answer.statusCode() + " " + answer.body());
        }
    }
}
