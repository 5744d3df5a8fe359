package terrace.peers;

import java.util.Collection;
import java.util.List;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.elasticsearch.Build;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.cluster.metadata.IndexNameExpressionResolver;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.common.io.stream.NamedWriteableRegistry;
import org.elasticsearch.common.settings.ClusterSettings;
import org.elasticsearch.common.settings.IndexScopedSettings;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.common.settings.SettingsFilter;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.plugins.ActionPlugin;
import org.elasticsearch.plugins.Plugin;
import org.elasticsearch.rest.BaseRestHandler;
import org.elasticsearch.rest.RestController;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;
import org.elasticsearch.xcontent.XContentBuilder;

/** Answers GET /, which clients ask first: the archive of Elasticsearch on Maven Central has no handler for it. */
public class RootHandler extends Plugin implements ActionPlugin {
  @Override
  public Collection<RestHandler> getRestHandlers(
      Settings settings, NamedWriteableRegistry registry, RestController controller, ClusterSettings cluster,
      IndexScopedSettings scoped, SettingsFilter filter, IndexNameExpressionResolver names,
      Supplier<DiscoveryNodes> nodes, Predicate<NodeFeature> features) {
    return List.of(new Root());
  }

  private static class Root extends BaseRestHandler {
    @Override
    public String getName() {
      return "main_action";
    }

    @Override
    public List<Route> routes() {
      return List.of(new Route(RestRequest.Method.GET, "/"), new Route(RestRequest.Method.HEAD, "/"));
    }

    @Override
    protected RestChannelConsumer prepareRequest(RestRequest request, NodeClient client) {
      return channel -> {
        XContentBuilder body = channel.newBuilder().startObject();
        body.field("name", "peer").field("cluster_name", "elasticsearch").field("cluster_uuid", "_na_");
        body.startObject("version");
        body.field("number", Build.current().version()).field("build_flavor", "default").field("build_type", "zip");
        body.field("build_hash", Build.current().hash()).field("build_date", Build.current().date());
        body.field("build_snapshot", false).field("lucene_version", org.apache.lucene.util.Version.LATEST.toString());
        body.field("minimum_wire_compatibility_version", "7.17.0");
        body.field("minimum_index_compatibility_version", "7.0.0");
        body.endObject().field("tagline", "You Know, for Search").endObject();
        channel.sendResponse(new RestResponse(RestStatus.OK, body));
      };
    }
  }
}
