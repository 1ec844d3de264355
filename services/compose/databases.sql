-- Makes the login and the databases of docker-compose.yml at the first start of its server. The
-- login may create the roles that the first migration needs, and is no superuser; the superuser
-- keeps no password, so that nobody reaches it over the network.
\getenv password POSTGRES_PASSWORD
CREATE ROLE packhorse LOGIN CREATEROLE PASSWORD :'password';
CREATE DATABASE author OWNER packhorse;
CREATE DATABASE sub1 OWNER packhorse;
CREATE DATABASE sub2 OWNER packhorse;
CREATE DATABASE sub3 OWNER packhorse;
ALTER ROLE CURRENT_USER PASSWORD NULL;
