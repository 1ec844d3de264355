"""What `spark-submit` starts. Python finds modules beside it, so it lies apart from the others."""

from packhorse_services.pipeline.__main__ import main

if __name__ == "__main__":
    main()
