"""Words that name software, services and their makers, and that hardly any person is called by.

Entries, parted by white space, are regular expressions for one whole word, in small letters. A product that shares
its name with people (Jenkins, Julia, Claude) is not among them: only the words around it tell that it is meant.
"""

PRODUCTS = """
    kubernetes docker podman terraform opentofu ansible puppet pulumi vagrant packer istio envoy linkerd traefik nginx
    haproxy varnish apache tomcat vault consul etcd zookeeper vercel netlify heroku cloudflare fastly akamai aws azure
    digitalocean openshift rancher proxmox vmware citrix linux debian ubuntu windows android macos
    postgres(?:ql)? mysql mariadb sqlite mongodb? redis valkey memcached elasticsearch opensearch kibana logstash
    clickhouse cockroachdb couchbase couchdb dynamodb bigquery snowflake redshift databricks hadoop airflow
    dagster dbt kafka rabbitmq pulsar celery sidekiq debezium fluentd fluentbit
    grafana prometheus datadog splunk sentry pagerduty opsgenie statuspage zabbix nagios opentelemetry
    git github gitlab bitbucket gitea subversion mercurial xcode eclipse intellij webpack vite pytest cypress selenium
    playwright postman swagger openapi graphql grpc gradle bazel npm pypi artifactory sonarqube dependabot
    python java javascript typescript kotlin golang php node deno react vue angular svelte tailwind bootstrap flask
    fastapi laravel symfony hibernate electron
    slack zoom jira confluence trello notion figma canva airtable basecamp zendesk freshdesk intercom hubspot
    salesforce pipedrive zapier mailchimp sendgrid mailgun twilio stripe paypal adyen klarna shopify magento
    woocommerce wordpress drupal joomla typo3 contentful quickbooks xero datev netsuite workday docusign dropbox
    sharepoint outlook gmail excel powerpoint onedrive photoshop autocad matlab tableau looker metabase qlik
    auth0 keycloak bitwarden lastpass google microsoft amazon openai anthropic gemini chatgpt copilot ollama
    firefox chrome edge visual
"""
PARTS = """actions activity analytics api app browser calendar chat cli cloud code connect console containers copilot
    dashboards? data database desktop developers? directory docs drive engine enterprise explorer forms functions hub
    insights kubernetes lens manager maps meet mobile monitor office online pages pay plus pro registry runtime sdk
    search security server service services sheets spaces sql stack standard storage streams? studio suite support
    teams threads? workers workflows workspaces? xl"""
"""Second words of a product's name: `GitHub Actions`, `Google Cloud Storage`."""
SOFTWARE = """apis? apps? backends? caches? clis? clusters? connectors? daemons? databases? dashboards? endpoints?
    exporters? frameworks? frontends? instances? integrations? middlewares? namespaces? plugins? pods? runtimes? sdks?
    sidecars? webhooks? workflows?"""
"""What a person's name hardly stands before without an apostrophe, and what is no verb: `the Kestrel plugin`."""
RUNS = "runs? running hosted deployed installed läuft laufen"
"""Before `on`, and the name of what it is that something runs on."""
DOMAINS = r"[\w-]+\.(?:js|ts|io|ai|app|dev|com|net|org|cloud|py|rs)"
"""Written like a file or a host: `Next.js`."""
ALSO_VERBS = "backups invoices orders refunds releases returns stores teams"
"""Of an organisation's words those that a person may do, too: `Vera returns on Monday`."""
ARTICLES = "the an? all both every each"
ALSO_MONTHS = "april may june august juni"
"""Months that are names as well."""
UNITS = """times days? weeks? months? years? hours? minutes? euros? dollars? pounds? crowns percent kg km tagen?
    wochen? monaten? jahren? stunden? mal días? semanas? mes(?:es)? años? horas? veces jours? semaines? mois ans?
    heures? fois dias? anos? vezes"""
"""Behind a number that belongs to them, and not to the word before it: `pays Tom 300 euros`."""
