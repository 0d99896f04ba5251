// The API server as users of npm's `@kubernetes/client-node` see it.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(import.meta.url);
// NODE_PATH is not for `import`, so the module's place is found as `require` would.
const k8s = await import(pathToFileURL(require.resolve('@kubernetes/client-node')).href);

// How long anything that must come may take, in milliseconds.
const PATIENCE = 60_000;
const NS = 'node';
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);

const within = (promise, what) => {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited in vain for ${what}`)), PATIENCE);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};
const configMap = (name, data, labels = {}) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace: NS, labels },
  data,
});
const refused = (code, words, call) =>
  assert.rejects(call, (error) => {
    assert.equal(error.code, code, error.message);
    assert.ok(JSON.stringify(error.body ?? error.message).includes(words), error.message);
    return true;
  });

const checks = {
  async 'create, read, replace, delete'() {
    const made = await core.createNamespacedConfigMap({ namespace: NS, body: configMap('life', { a: '1' }) });
    assert.ok(made.metadata.creationTimestamp instanceof Date);
    const replaced = await core.replaceNamespacedConfigMap({
      namespace: NS,
      name: 'life',
      body: { ...made, data: { a: '2' } },
    });
    assert.deepEqual(replaced.data, { a: '2' });
    await refused(409, 'Conflict', () =>
      core.replaceNamespacedConfigMap({ namespace: NS, name: 'life', body: made }),
    );
    await core.deleteNamespacedConfigMap({ namespace: NS, name: 'life' });
    await refused(404, 'NotFound', () => core.readNamespacedConfigMap({ namespace: NS, name: 'life' }));
  },

  async 'lists in pages, by selectors'() {
    for (const name of ['l1', 'l2', 'l3', 'l4', 'l5']) {
      await core.createNamespacedConfigMap({ namespace: NS, body: configMap(name, {}, { set: 'lists' }) });
    }
    const names = [];
    let _continue;
    do {
      const page = await core.listNamespacedConfigMap({ namespace: NS, labelSelector: 'set=lists', limit: 2, _continue });
      assert.ok(page.items.length <= 2);
      names.push(...page.items.map((item) => item.metadata.name));
      _continue = page.metadata._continue;
    } while (_continue);
    assert.deepEqual(names, ['l1', 'l2', 'l3', 'l4', 'l5']);
    await core.deleteCollectionNamespacedConfigMap({ namespace: NS, labelSelector: 'set=lists' });
  },

  async 'an informer sees what is and what comes'() {
    await core.createNamespacedConfigMap({ namespace: NS, body: configMap('was', {}, { watched: 'yes' }) });
    const list = () => core.listNamespacedConfigMap({ namespace: NS, labelSelector: 'watched=yes' });
    const path = `/api/v1/namespaces/${NS}/configmaps`;
    const informer = k8s.makeInformer(config, path, list, 'watched=yes');
    const seen = [];
    let woken;
    for (const kind of ['add', 'update', 'delete']) {
      informer.on(kind, (object) => {
        seen.push(`${kind} ${object.metadata.name}`);
        woken?.();
      });
    }
    informer.on('error', (error) => seen.push(`error ${error}`));
    const until = (count) =>
      within(
        (async () => {
          while (seen.length < count) await new Promise((wake) => (woken = wake));
        })(),
        `${count} events of ${seen}`,
      );
    await informer.start();
    await until(1);
    await core.createNamespacedConfigMap({ namespace: NS, body: configMap('comes', { a: '1' }, { watched: 'yes' }) });
    await until(2);
    await core.patchNamespacedConfigMap(
      { namespace: NS, name: 'comes', body: { data: { a: '2' } } },
      k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch),
    );
    await until(3);
    await core.deleteNamespacedConfigMap({ namespace: NS, name: 'comes' });
    await until(4);
    assert.deepEqual(seen, ['add was', 'add comes', 'update comes', 'delete comes']);
    await informer.stop();
  },

  async 'patches of three kinds, and scale'() {
    const labels = { app: 'web' };
    await apps.createNamespacedDeployment({
      namespace: NS,
      body: {
        metadata: { name: 'web' },
        spec: {
          replicas: 0,
          selector: { matchLabels: labels },
          template: { metadata: { labels }, spec: { containers: [{ name: 'c', image: 'nobody/has:1' }] } },
        },
      },
    });
    const patch = (body, strategy) =>
      apps.patchNamespacedDeployment({ namespace: NS, name: 'web', body }, k8s.setHeaderOptions('Content-Type', strategy));
    const more = { spec: { template: { spec: { containers: [{ name: 'more', image: 'i' }] } } } };
    const strategic = await patch(more, k8s.PatchStrategy.StrategicMergePatch);
    assert.equal(strategic.spec.template.spec.containers.length, 2);
    const merged = await patch(more, k8s.PatchStrategy.MergePatch);
    assert.equal(merged.spec.template.spec.containers.length, 1);
    const json = await patch([{ op: 'replace', path: '/spec/replicas', value: 2 }], k8s.PatchStrategy.JsonPatch);
    assert.equal(json.spec.replicas, 2);
    // A controller writes to it as well: whoever is late reads again.
    for (let written = false; !written; ) {
      const scale = await apps.readNamespacedDeploymentScale({ namespace: NS, name: 'web' });
      assert.deepEqual([scale.spec.replicas, scale.status.selector], [2, 'app=web']);
      scale.spec.replicas = 0;
      written = await apps.replaceNamespacedDeploymentScale({ namespace: NS, name: 'web', body: scale }).then(
        () => true,
        (error) => {
          if (error.code !== 409) throw error;
          return false;
        },
      );
    }
    const read = await apps.readNamespacedDeployment({ namespace: NS, name: 'web' });
    assert.equal(read.spec.replicas, 0);
    await apps.deleteNamespacedDeployment({ namespace: NS, name: 'web' });
  },

  async 'objects of any kind'() {
    const made = await objects.create(configMap('any', { a: '1' }));
    assert.equal(made.data.a, '1');
    const patched = await objects.patch(
      { ...configMap('any', { a: '2' }) },
      undefined,
      undefined,
      undefined,
      undefined,
      k8s.PatchStrategy.MergePatch,
    );
    assert.equal(patched.data.a, '2');
    await objects.delete(configMap('any'));
    await refused(404, 'NotFound', () => objects.read(configMap('any')));
  },

  async 'server-side apply'() {
    const apply = (manager, data, force) =>
      objects.patch(configMap('ssa', data), undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply);
    const made = await apply('one', { a: '1', b: '1' });
    assert.deepEqual(made.metadata.managedFields.map((entry) => entry.manager), ['one']);
    await refused(409, 'conflict', () => apply('two', { a: '2' }));
    const forced = await apply('two', { a: '2' }, true);
    assert.deepEqual(forced.data, { a: '2', b: '1' });
    const again = await apply('two', { a: '2' }, true);
    assert.equal(again.metadata.resourceVersion, forced.metadata.resourceVersion);
  },
};

await core.createNamespace({ body: { metadata: { name: NS } } });
let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await within(check(), name);
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}\n${error.stack}`);
  }
}
const all = Object.keys(checks).length;
console.log(`${all - failed} of ${all} checks passed`);
process.exit(failed ? 1 : 0);
