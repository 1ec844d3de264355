interface Named {
  path?: Record<string, unknown>;
}

/**
 * The configuration that every generated client begins with. An answer is JSON, whatever its type
 * says: a page of whoever stands before the service is an error.
 */
export function createClientConfig<T extends object>(config?: T) {
  const usual = { parseAs: "json" as const, requestValidator: checkNames };
  return { ...config, ...usual } as T & typeof usual;
}

/**
 * Refuses a name that is empty, "." or "..", and a path with such a segment: it would name another
 * resource, for a URL is made shorter before anybody sees it. Nothing is sent.
 */
async function checkNames(asked: unknown): Promise<void> {
  for (const [name, value] of Object.entries((asked as Named).path ?? {})) {
    if (name === "path" && value === "") continue; // the root of the tree
    const segments = name === "path" ? String(value).split("/") : [String(value)];
    if (segments.some((one) => ["", ".", ".."].includes(one))) {
      throw new TypeError(`${JSON.stringify(value)} is no ${name}: a name is empty, "." or ".."`);
    }
  }
}
