import org.openapitools.codegen.OpenAPIGenerator;

/** Generates from one configuration after the other: the generator's own batch mixes them up. */
class GenerateAll {
  public static void main(String[] configurations) {
    for (String configuration : configurations) {
      OpenAPIGenerator.main(new String[] {"generate", "-c", configuration});
    }
  }
}
